// The Go applications of the advisor's corpus: the argument names one of them. See ../../advise/corpus.py for its environment, and
// corpus.tsv there for what each does right or wrong.
package main

import (
	"context"
	"fmt"
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
