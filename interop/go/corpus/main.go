// The Go applications of the advisor's corpus: the argument names one of them. See ../../advise/corpus.py for its environment, and
// corpus.tsv there for what each does right or wrong.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var rounds = 100

var ctx = context.Background()

func client(variable string) *redis.Client {
	options, err := redis.ParseURL(os.Getenv(variable))
	check(err)
	return redis.NewClient(options)
}

func check(err error) {
	if err != nil && err != redis.Nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fill(command func(pipe redis.Pipeliner, n int)) {
	_, err := client("DIRECT_URL").Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := 0; n < rounds; n++ {
			command(pipe, n)
		}
		return nil
	})
	check(err)
}

func names() {
	fill(func(pipe redis.Pipeliner, n int) {
		pipe.HSet(ctx, fmt.Sprintf("user:%d", n), "name", fmt.Sprintf("name %d", n))
	})
}

var applications = map[string]func(){
	"go-hget-loop": func() {
		names()
		r := client("PENSTOCK_URL")
		for n := 0; n < rounds; n++ {
			check(r.HGet(ctx, fmt.Sprintf("user:%d", n), "name").Err())
		}
	},
	"go-hget-loop-rewritten": func() {
		names()
		_, err := client("PENSTOCK_URL").Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for n := 0; n < rounds; n++ {
				pipe.HGet(ctx, fmt.Sprintf("user:%d", n), "name")
			}
			return nil
		})
		check(err)
	},
	"go-zadd-loop": func() {
		r := client("PENSTOCK_URL")
		for n := 0; n < rounds; n++ {
			check(r.ZAdd(ctx, "ranking", redis.Z{Score: float64(n), Member: fmt.Sprintf("player %d", n)}).Err())
		}
	},
	"go-zadd-loop-rewritten": func() {
		members := make([]redis.Z, 0, rounds)
		for n := 0; n < rounds; n++ {
			members = append(members, redis.Z{Score: float64(n), Member: fmt.Sprintf("player %d", n)})
		}
		check(client("PENSTOCK_URL").ZAdd(ctx, "ranking", members...).Err())
	},
	"go-autopipeline": func() {
		names()
		pipe, err := client("PENSTOCK_URL").AutoPipeline()
		check(err)
		for round := 0; round < 10; round++ {
			var wait sync.WaitGroup
			for n := 0; n < rounds; n++ {
				wait.Add(1)
				go func() {
					defer wait.Done()
					check(pipe.HGet(ctx, fmt.Sprintf("user:%d", n), "name").Err())
				}()
			}
			wait.Wait()
		}
	},
	"go-transactions": func() {
		r := client("PENSTOCK_URL")
		for n := 0; n < rounds; n++ {
			_, err := r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Incr(ctx, fmt.Sprintf("counter:%d", n))
				pipe.Incr(ctx, "counter:all")
				return nil
			})
			check(err)
		}
	},
	"go-get-loop": func() {
		fill(func(pipe redis.Pipeliner, n int) {
			pipe.Set(ctx, fmt.Sprintf("user:%d:name", n), fmt.Sprintf("name %d", n), 0)
		})
		r := client("PENSTOCK_URL")
		for n := 0; n < rounds; n++ {
			check(r.Get(ctx, fmt.Sprintf("user:%d:name", n)).Err())
		}
	},
	"go-set-with-expiry-loop": func() {
		r := client("PENSTOCK_URL")
		for n := 0; n < rounds; n++ {
			check(r.Set(ctx, fmt.Sprintf("token:%d", n), fmt.Sprintf("value %d", n), time.Hour).Err())
		}
	},
	"go-incr-loop": func() {
		r := client("PENSTOCK_URL")
		for n := 0; n < rounds; n++ {
			check(r.Incr(ctx, "clicks").Err())
		}
	},
	"go-sadd-loop": func() {
		r := client("PENSTOCK_URL")
		for n := 0; n < rounds; n++ {
			check(r.SAdd(ctx, "visitors", fmt.Sprintf("visitor %d", n)).Err())
		}
	},
	"go-exists-loop": func() {
		names()
		r := client("PENSTOCK_URL")
		for n := 0; n < rounds; n++ {
			check(r.Exists(ctx, fmt.Sprintf("user:%d", n)).Err())
		}
	},
	"go-pool-of-random-keys": func() {
		names()
		r := client("PENSTOCK_URL")
		var wait sync.WaitGroup
		for worker := 0; worker < 8; worker++ {
			wait.Add(1)
			go func() {
				defer wait.Done()
				users := rand.New(rand.NewSource(int64(worker)))
				for n := 0; n < rounds; n++ {
					check(r.HGet(ctx, fmt.Sprintf("user:%d", users.Intn(rounds)), "name").Err())
					time.Sleep(time.Duration(2+users.Intn(4)) * time.Millisecond)
				}
			}()
		}
		wait.Wait()
	},
	"go-json-chain": func() {
		id := func(n int) int { return n * 7919 % 100_003 }
		fill(func(pipe redis.Pipeliner, n int) {
			pipe.Set(ctx, fmt.Sprintf("page:%d", id(n)), fmt.Sprintf(`{"next":%d}`, id(n+1)), 0)
		})
		r := client("PENSTOCK_URL")
		page := struct{ Next int }{}
		for n := 0; n < rounds; n++ {
			text, err := r.Get(ctx, fmt.Sprintf("page:%d", page.Next)).Bytes()
			check(err)
			check(json.Unmarshal(text, &page))
		}
	},
	"go-pipelines-of-hundreds": func() {
		r := client("PENSTOCK_URL")
		for chunk := 0; chunk < 10; chunk++ {
			_, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for n := 0; n < rounds; n++ {
					pipe.Set(ctx, fmt.Sprintf("bulk:%d:%d", chunk, n), n, 0)
				}
				return nil
			})
			check(err)
		}
	},
	"go-requests": func() {
		names()
		r := client("PENSTOCK_URL")
		users := rand.New(rand.NewSource(3))
		for n := 0; n < rounds; n++ {
			user := users.Intn(rounds)
			check(r.HGet(ctx, fmt.Sprintf("user:%d", user), "name").Err())
			check(r.Incr(ctx, fmt.Sprintf("visits:%d", user)).Err())
			time.Sleep(5 * time.Millisecond)
		}
	},
	"go-profiles-one-by-one": func() {
		fill(func(pipe redis.Pipeliner, n int) {
			pipe.HSet(ctx, fmt.Sprintf("profile:%d", n), "name", fmt.Sprintf("name %d", n), "mail", fmt.Sprintf("mail %d", n))
		})
		r := client("PENSTOCK_URL")
		for n := 0; n < rounds; n++ {
			check(r.HMGet(ctx, fmt.Sprintf("profile:%d", n), "name", "mail").Err())
		}
	},
	// A script by its hash for each request.
	"go-script-per-request": func() {
		script := redis.NewScript("local n = redis.call('INCR', KEYS[1]) redis.call('EXPIRE', KEYS[1], 60) return n")
		check(script.Load(ctx, client("DIRECT_URL")).Err())
		r := client("PENSTOCK_URL")
		users := rand.New(rand.NewSource(9))
		for n := 0; n < 60; n++ {
			check(script.Run(ctx, r, []string{fmt.Sprintf("limit:%d", users.Intn(50))}).Err())
			time.Sleep(20 * time.Millisecond)
		}
	},
	// The first missing chunk is looked for by doubled steps, and then by halves.
	"go-first-missing-chunk": func() {
		_, err := client("DIRECT_URL").Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for n := 0; n < 900; n++ {
				pipe.Set(ctx, fmt.Sprintf("chunk:%d", n), "x", 0)
			}
			return nil
		})
		check(err)
		r := client("PENSTOCK_URL")
		has := func(n int) bool { return r.Exists(ctx, fmt.Sprintf("chunk:%d", n)).Val() == 1 }
		for search := 0; search < 10; search++ {
			low, high := 0, 1
			for has(high) {
				low, high = high, high*2
			}
			for high-low > 1 {
				if middle := (low + high) / 2; has(middle) {
					low = middle
				} else {
					high = middle
				}
			}
			check(r.Set(ctx, fmt.Sprintf("chunk:%d", high), "x", 0).Err())
			time.Sleep(20 * time.Millisecond)
		}
	},
	// A seat is taken, a ticket gets the next number, and the number is part of its key.
	"go-seats-and-tickets": func() {
		r := client("PENSTOCK_URL")
		shows := rand.New(rand.NewSource(11))
		for n := 0; n < 60; n++ {
			show := fmt.Sprintf("show:%d", shows.Intn(50))
			check(r.HIncrBy(ctx, show, "left", -1).Err())
			ticket, err := r.Incr(ctx, "tickets").Result()
			check(err)
			check(r.HSet(ctx, fmt.Sprintf("ticket:%d", ticket), "show", show).Err())
			time.Sleep(20 * time.Millisecond)
		}
	},
}

func main() {
	if text := os.Getenv("ROUNDS"); text != "" {
		number, err := strconv.Atoi(text)
		check(err)
		rounds = number
	}
	began := time.Now()
	applications[os.Args[1]]()
	fmt.Printf("%.6f s\n", time.Since(began).Seconds())
}
