// Command clients runs go-redis, unmodified, against a server: one table of calls, each made on its own, in a pipeline
// and in MULTI/EXEC, in RESP2 and in RESP3; then what a table can't hold. With the argument `ring` it runs the client's Ring
// over several servers instead, with `cluster` its ClusterClient, and with `rueidis` another client against a cluster.
//
// It ends with status 1 and the wrong reply at the first one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A reply that does not come within this long is a failure.
const patience = 120 * time.Second

var (
	checksLock sync.Mutex
	checks     int
)

func fail(format string, arguments ...any) {
	fmt.Printf(format+"\n", arguments...)
	os.Exit(1)
}

// check is one check: it ends the program where actual is not expected.
func check(what string, actual, expected any) {
	checksLock.Lock()
	checks++
	checksLock.Unlock()
	if !reflect.DeepEqual(actual, expected) {
		fail("%s:\n  expected %#v\n  got      %#v", what, expected, actual)
	}
}

// must returns the value of a call that is not expected to fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// refused checks that a call ended with exactly this error.
func refused(what, text string, err error) {
	check(what, fmt.Sprint(err), text)
}

func connect(protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:         "127.0.0.1:" + os.Getenv("PENSTOCK_PORT"),
		Protocol:     protocol,
		ReadTimeout:  30 * time.Second,
		WriteTimeout: 30 * time.Second,
		MaxRetries:   -1,
	})
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer func() {
		if failure := recover(); failure != nil {
			fail("%v", failure)
		}
	}()
	parts := map[string]func(context.Context){"ring": ring, "cluster": cluster, "rueidis": rueidisCluster, "abort": abortAtFailure, "moving": moving}
	if len(os.Args) > 1 {
		parts[os.Args[1]](ctx)
	} else {
		oneServer(ctx)
	}
	fmt.Printf("%d checks\n", checks)
}

func oneServer(ctx context.Context) {
	for _, protocol := range []int{2, 3} {
		client := connect(protocol)
		must(client.FlushAll(ctx).Result())
		for _, part := range []func(context.Context, *redis.Client){
			table, pipelineErrors, transactions, large, pool, waiting, iterators, subscriptions, connections,
		} {
			part(ctx, client)
		}
		must(0, client.Close())
	}
}

func pipelineErrors(ctx context.Context, client *redis.Client) {
	const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	must(client.Set(ctx, "s", "text", 0).Result())
	refused("wrong type", wrongType, client.LPush(ctx, "s", 1).Err())
	refused("nil", "redis: nil", client.Get(ctx, "none").Err())
	refused("unknown", "ERR unknown command 'nosuch', with args beginning with: 'a' ", client.Do(ctx, "nosuch", "a").Err())
	refused("arity", "ERR wrong number of arguments for 'get' command", client.Do(ctx, "get").Err())
	commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "n", 1, 0)
		pipe.LPush(ctx, "n", 1)
		pipe.Do(ctx, "get")
		pipe.Incr(ctx, "n")
		return nil
	})
	refused("the first error of a pipeline", wrongType, err)
	check("what follows an error runs", commands[3].(*redis.IntCmd).Val(), int64(2))
	_, err = client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, "n")
		pipe.Do(ctx, "get")
		return nil
	})
	refused("EXECABORT", "EXECABORT Transaction discarded because of previous errors.", err)
	check("nothing of it ran", client.Get(ctx, "n").Val(), "2")
}

// increment is the optimistic loop of the client's documentation.
func increment(ctx context.Context, client *redis.Client, key string) error {
	for {
		err := client.Watch(ctx, func(tx *redis.Tx) error {
			value, err := tx.Get(ctx, key).Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, key, value+1, 0)
				return nil
			})
			return err
		}, key)
		if !errors.Is(err, redis.TxFailedErr) {
			return err
		}
	}
}

func transactions(ctx context.Context, client *redis.Client) {
	must(client.FlushAll(ctx).Result())
	inParallel(8, func(int) {
		for range 25 {
			must(0, increment(ctx, client, "watched"))
		}
	})
	check("WATCH loops by 8 goroutines", client.Get(ctx, "watched").Val(), "200")
}

func inParallel(count int, work func(number int)) {
	var group sync.WaitGroup
	for number := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			defer func() {
				if failure := recover(); failure != nil {
					fail("goroutine %d: %v", number, failure)
				}
			}()
			work(number)
		}()
	}
	group.Wait()
}

func large(ctx context.Context, client *redis.Client) {
	const count = 50_000
	commands := must(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range count {
			pipe.Set(ctx, fmt.Sprint("k", number), number, 0)
			pipe.Get(ctx, fmt.Sprint("k", number))
		}
		return nil
	}))
	for number := range count {
		got := commands[2*number+1].(*redis.StringCmd).Val()
		if got != fmt.Sprint(number) {
			fail("reply %d of a pipeline of %d is %q", number, 2*count, got)
		}
	}
	check("commands in a pipeline", len(commands), 2*count)
	blob := strings.Repeat("any bytes \x00\xff\r\n", 700_000)
	must(client.Set(ctx, "blob", blob, 0).Result())
	check("a value of 10 MB", client.Get(ctx, "blob").Val() == blob, true)
}

// pool shares a few connections among many goroutines, pipelined and not.
func pool(ctx context.Context, client *redis.Client) {
	must(client.FlushAll(ctx).Result())
	options := *client.Options()
	options.PoolSize = 5
	shared := redis.NewClient(&options)
	inParallel(50, func(number int) {
		key := fmt.Sprint("own:", number)
		for turn := range 40 {
			must(shared.Set(ctx, key, turn, 0).Result())
			check("what a goroutine set", shared.Get(ctx, key).Val(), fmt.Sprint(turn))
			run := shared.Pipelined
			if turn%2 == 0 {
				run = shared.TxPipelined
			}
			commands := must(run(ctx, func(pipe redis.Pipeliner) error {
				pipe.Incr(ctx, "shared")
				pipe.Get(ctx, key)
				return nil
			}))
			check("in a pipeline", commands[1].(*redis.StringCmd).Val(), fmt.Sprint(turn))
		}
	})
	check("the sum of 50 goroutines", shared.Get(ctx, "shared").Val(), "2000")
	check("connections of the pool", shared.PoolStats().TotalConns <= 5, true)
	must(0, shared.Close())
}

// untilBlocked waits until the server has as many blocked clients.
func untilBlocked(ctx context.Context, client *redis.Client, count int) {
	for !strings.Contains(client.Info(ctx, "clients").Val(), fmt.Sprintf("blocked_clients:%d\r\n", count)) {
		must(0, ctx.Err())
	}
}

func waiting(ctx context.Context, client *redis.Client) {
	must(client.FlushAll(ctx).Result())
	answers := make(chan []string, 10)
	for range 10 {
		go func() { answers <- client.BLPop(ctx, 0, "q1", "q2").Val() }()
	}
	untilBlocked(ctx, client, 10)
	must(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range 10 {
			pipe.RPush(ctx, "q2", number)
		}
		return nil
	}))
	seen := map[string]bool{}
	for range 10 {
		answer := <-answers
		check("BLPOP's key", answer[0], "q2")
		seen[answer[1]] = true
	}
	check("each element once", len(seen), 10)
	check("nothing left", client.Exists(ctx, "q2").Val(), int64(0))
	refused("a timeout", "redis: nil", client.BRPop(ctx, time.Second, "none").Err())
	moved := make(chan string, 1)
	go func() { moved <- client.BLMove(ctx, "from", "to", "LEFT", "RIGHT", 0).Val() }()
	untilBlocked(ctx, client, 1)
	must(client.RPush(ctx, "from", "m").Result())
	check("BLMOVE", <-moved, "m")
	check("BZPOPMIN at once", func() redis.ZWithKey {
		client.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "a"})
		return *client.BZPopMin(ctx, 0, "none", "z").Val()
	}(), redis.ZWithKey{Key: "z", Z: redis.Z{Score: 1.5, Member: "a"}})
}

func iterators(ctx context.Context, client *redis.Client) {
	must(client.FlushAll(ctx).Result())
	const count = 3000
	must(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range count {
			name := fmt.Sprint("name:", number)
			pipe.Set(ctx, name, number, 0)
			pipe.SAdd(ctx, "set", name)
			pipe.HSet(ctx, "hash", name, number)
			pipe.ZAdd(ctx, "zset", redis.Z{Score: float64(number), Member: name})
		}
		return nil
	}))
	for what, iterator := range map[string]struct {
		scan  *redis.ScanIterator
		every int
	}{
		"SCAN":  {client.Scan(ctx, 0, "name:*", 100).Iterator(), 1},
		"SSCAN": {client.SScan(ctx, "set", 0, "", 100).Iterator(), 1},
		"HSCAN": {client.HScan(ctx, "hash", 0, "", 100).Iterator(), 2},
		"ZSCAN": {client.ZScan(ctx, "zset", 0, "", 100).Iterator(), 2},
	} {
		found := map[string]bool{}
		for at := 0; iterator.scan.Next(ctx); at++ {
			if at%iterator.every == 0 {
				found[iterator.scan.Val()] = true
			}
		}
		must(0, iterator.scan.Err())
		check(what, len(found), count)
	}
	check("SCAN TYPE", client.ScanType(ctx, 0, "*", 10_000, "hash").Err(), nil)
}

func subscriptions(ctx context.Context, client *redis.Client) {
	subscriber := client.Subscribe(ctx, "news", "weather")
	defer subscriber.Close()
	must(0, subscriber.PSubscribe(ctx, "sport.*"))
	for range 3 {
		_ = must(subscriber.Receive(ctx)).(*redis.Subscription)
	}
	check("PUBSUB NUMSUB", client.PubSubNumSub(ctx, "news", "none").Val(), map[string]int64{"news": 1, "none": 0})
	messages := subscriber.Channel(redis.WithChannelSize(2000))
	commands := must(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range 1000 {
			pipe.Publish(ctx, []string{"news", "sport.chess"}[number%2], number)
		}
		return nil
	}))
	check("receivers", commands[999].(*redis.IntCmd).Val(), int64(1))
	for number := range 1000 {
		message := <-messages
		check("messages in order", message.Payload, fmt.Sprint(number))
		check("the pattern of a message", message.Pattern, []string{"", "sport.*"}[number%2])
	}
	must(0, subscriber.Ping(ctx, "alive?"))
	must(0, subscriber.Unsubscribe(ctx, "news"))
	sharded := client.SSubscribe(ctx, "shard")
	defer sharded.Close()
	_ = must(sharded.Receive(ctx)).(*redis.Subscription)
	check("SPUBLISH", client.SPublish(ctx, "shard", "x").Val(), int64(1))
	check("a message of a shard", must(sharded.ReceiveMessage(ctx)).Payload, "x")
}

func connections(ctx context.Context, client *redis.Client) {
	options := *client.Options()
	options.ClientName, options.DB = "named", 4
	named := redis.NewClient(&options)
	info := must(named.ClientInfo(ctx).Result())
	check("CLIENT INFO", []any{info.Name, info.DB, info.Resp}, []any{"named", 4, options.Protocol})
	var major, minor int
	server := must(client.InfoMap(ctx, "server").Result())["Server"]
	_ = must(fmt.Sscanf(server["redis_version"], "%d.%d", &major, &minor))
	if major*100+minor >= 702 {
		check("CLIENT SETINFO", strings.HasPrefix(info.LibName, "go-redis"), true)
	}
	number := must(named.ClientID(ctx).Result())
	check("CLIENT KILL", client.ClientKillByFilter(ctx, "ID", fmt.Sprint(number)).Val(), int64(1))
	check("CONFIG GET", client.ConfigGet(ctx, "port").Val(), map[string]string{"port": os.Getenv("PENSTOCK_PORT")})
	command := must(client.Command(ctx).Result())["mget"]
	check("COMMAND", []any{command.Arity, command.FirstKeyPos, command.LastKeyPos}, []any{int8(-2), int8(1), int8(-1)})
	check("TIME", time.Since(client.Time(ctx).Val()).Abs() < time.Minute, true)
	check("SLOWLOG", client.SlowLogGet(ctx, 1).Err(), nil)
	options.Network, options.Addr = "unix", os.Getenv("PENSTOCK_SOCKET")
	check("the Unix socket", redis.NewClient(&options).Ping(ctx).Val(), "PONG")
}
