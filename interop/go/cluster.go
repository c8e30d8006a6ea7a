package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const pageOfCluster = "../docs/cluster.md"

const crossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// clusterOptions has one option that isn't the default: while a primary is away, the client asks for the slots again at this interval
// only, and its default is a minute.
func clusterOptions(protocol int) *redis.ClusterOptions {
	options := &redis.ClusterOptions{Protocol: protocol, ClusterStateReloadInterval: time.Second}
	for _, port := range strings.Split(os.Getenv("PENSTOCK_PORTS"), ",")[:2] {
		options.Addrs = append(options.Addrs, "127.0.0.1:"+port)
	}
	return options
}

// cluster runs go-redis's ClusterClient, in RESP2 and RESP3.
func cluster(ctx context.Context) {
	for _, protocol := range []int{2, 3} {
		client := redis.NewClusterClient(clusterOptions(protocol))
		must(0, client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.FlushAll(ctx).Err() }))
		for _, part := range []func(context.Context, *redis.ClusterClient){
			clusterSingle, clusterPage, clusterPipelines, clusterOneSlot, clusterScripts, clusterSubscriptions,
		} {
			part(ctx, client)
		}
		must(0, client.Close())
	}
	clusterReplicas(ctx)
	// By default the client listens to announcements (SMIGRATED). It may meet no MOVED then.
	listener := redis.NewClusterClient(clusterOptions(3))
	reshard(goRedis{ctx, listener}, "go:announced")
	must(0, listener.Close())
	options := clusterOptions(3)
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClusterClient(options)
	changes(goRedis{ctx, client}, "go")
	for number := range clusterKeys {
		check("GET at the end", must(client.Get(ctx, fmt.Sprintf("go:%d", number)).Int()), number)
	}
	must(0, client.Close())
}

func clusterSingle(ctx context.Context, client *redis.ClusterClient) {
	for number := range clusterKeys {
		check("SET", must(client.Set(ctx, fmt.Sprintf("go:%d", number), number, 0).Result()), "OK")
	}
	for number := range clusterKeys {
		check("GET", must(client.Get(ctx, fmt.Sprintf("go:%d", number)).Int()), number)
	}
	check("DBSIZE of all nodes", must(client.DBSize(ctx).Result()), int64(clusterKeys))
}

// countVisits counts a visit of each page, in one pipeline for each node, and returns the new counts.
func countVisits(ctx context.Context, client *redis.ClusterClient, pages []string) ([]int64, error) {
	commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, page := range pages {
			pipe.Incr(ctx, "visits:"+page)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	counts := make([]int64, len(commands))
	for number, command := range commands {
		counts[number] = command.(*redis.IntCmd).Val()
	}
	return counts, nil
}

// clusterPage runs the page's pipeline, which this file must have as the page shows it.
func clusterPage(ctx context.Context, client *redis.ClusterClient) {
	page := string(must(os.ReadFile(pageOfCluster)))
	source := string(must(os.ReadFile("go/cluster.go")))
	_, example, _ := strings.Cut(page, "```go\n// countVisits")
	example, _, _ = strings.Cut(example, "```")
	check("the page's example is in the source", example != "" && strings.Contains(source, example), true)
	pages := clusterNames("%d", clusterKeys)
	for round := range 2 {
		counts := must(countVisits(ctx, client, pages))
		check("how many counts", len(counts), len(pages))
		for _, count := range counts {
			check("visits", count, int64(round+1))
		}
	}
}

func clusterPipelines(ctx context.Context, client *redis.ClusterClient) {
	commands := must(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range clusterNames("go:p:%d", clusterDepth) {
			pipe.Set(ctx, key, key, 0)
			pipe.Append(ctx, key, "+")
			pipe.Get(ctx, key)
		}
		return nil
	}))
	for number, key := range clusterNames("go:p:%d", clusterDepth) {
		check("APPEND in a pipeline", commands[3*number+1].(*redis.IntCmd).Val(), int64(len(key)+1))
		check("GET in a pipeline", commands[3*number+2].(*redis.StringCmd).Val(), key+"+")
	}
	commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number, key := range clusterNames("go:p:%d", clusterDepth) {
			if number%100 == 0 {
				pipe.LPush(ctx, key, 1)
			} else {
				pipe.Get(ctx, key)
			}
		}
		return nil
	})
	wrongType := "WRONGTYPE Operation against a key holding the wrong kind of value"
	refused("an error in a pipeline", wrongType, err)
	for number, key := range clusterNames("go:p:%d", clusterDepth) {
		if number%100 == 0 {
			refused("an error in its place", wrongType, commands[number].Err())
		} else {
			check("a value beside errors", commands[number].(*redis.StringCmd).Val(), key+"+")
		}
	}
}

func clusterOneSlot(ctx context.Context, client *redis.ClusterClient) {
	commands := must(client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "{go}a", 1, 0)
		pipe.Incr(ctx, "{go}a")
		return nil
	}))
	check("MULTI", commands[1].(*redis.IntCmd).Val(), int64(2))
	must(0, client.Watch(ctx, func(tx *redis.Tx) error {
		value := must(tx.Get(ctx, "{go}a").Int())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Set(ctx, "{go}a", value+1, 0).Err() })
		return err
	}, "{go}a"))
	check("GET after WATCH", must(client.Get(ctx, "{go}a").Result()), "3")
	check("MSET", must(client.MSet(ctx, "{go}b", 1, "{go}c", 2).Result()), "OK")
	check("MGET", must(client.MGet(ctx, "{go}c", "{go}b", "{go}none").Result()), []any{"2", "1", nil})
	refused("CROSSSLOT", crossSlot, client.SUnion(ctx, "go:1", "go:2").Err())
	_, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Get(ctx, "go:1")
		pipe.Get(ctx, "go:2")
		return nil
	})
	check("a transaction over several slots", errors.Is(err, redis.ErrCrossSlot), true)
}

func clusterScripts(ctx context.Context, client *redis.ClusterClient) {
	script := redis.NewScript(`return {KEYS[1], redis.call("INCRBY", KEYS[1], ARGV[1])}`)
	check("EVAL", must(script.Eval(ctx, client, []string{"{go}n"}, 5).Result()), []any{"{go}n", int64(5)})
	for number, key := range clusterNames("go:s:%d", 30) {
		check("EVALSHA", must(script.Run(ctx, client, []string{key}, number).Result()), []any{key, int64(number)})
	}
}

func clusterSubscriptions(ctx context.Context, client *redis.ClusterClient) {
	news := client.Subscribe(ctx, "go:news")
	hear(ctx, news, "go:news", func() error { return client.Publish(ctx, "go:news", "hello").Err() })
	for _, channel := range clusterNames("go:shard:%d", 6) {
		sharded := client.SSubscribe(ctx, channel)
		hear(ctx, sharded, channel, func() error { return client.SPublish(ctx, channel, "hello").Err() })
	}
}

// hear publishes until a message arrives: a message on the bus before its receiver has subscribed is lost.
func hear(ctx context.Context, subscriber *redis.PubSub, channel string, publish func() error) {
	must(subscriber.Receive(ctx))
	for heard := subscriber.Channel(); ; {
		must(0, publish())
		select {
		case message := <-heard:
			check("the message", []string{message.Channel, message.Payload}, []string{channel, "hello"})
			must(0, subscriber.Close())
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func clusterReplicas(ctx context.Context) {
	options := clusterOptions(3)
	options.ReadOnly = true
	reader := redis.NewClusterClient(options)
	read := func() {
		for number, key := range clusterNames("go:%d", clusterKeys) {
			waitUntil("the replica has "+key, func() bool { return reader.Get(ctx, key).Val() == fmt.Sprint(number) })
		}
	}
	read()
	// After an error, the client asks the primary in place of a replica for some seconds.
	must(0, reader.ForEachSlave(ctx, func(ctx context.Context, node *redis.Client) error {
		waitUntil("a replica has answered", func() bool {
			calls := must(node.InfoMap(ctx, "commandstats").Result())["Commandstats"]["cmdstat_get"]
			if calls == "" {
				read()
			}
			return calls != ""
		})
		return nil
	}))
	must(0, reader.Close())
}

// goRedis is the client of changes.
type goRedis struct {
	ctx    context.Context
	client *redis.ClusterClient
}

func (self goRedis) run(keys []string, add func(redis.Pipeliner, string)) ([]redis.Cmder, error) {
	return self.client.Pipelined(self.ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			add(pipe, key)
		}
		return nil
	})
}

func (self goRedis) increase(keys []string) (replies []int64, err error) {
	commands, err := self.run(keys, func(pipe redis.Pipeliner, key string) { pipe.Incr(self.ctx, key) })
	for _, command := range commands {
		replies = append(replies, command.(*redis.IntCmd).Val())
	}
	return replies, err
}

func (self goRedis) write(keys []string) error {
	_, err := self.run(keys, func(pipe redis.Pipeliner, key string) { pipe.Set(self.ctx, key, key, 0) })
	return err
}

func (self goRedis) read(keys []string) (values []string) {
	commands := must(self.run(keys, func(pipe redis.Pipeliner, key string) { pipe.Get(self.ctx, key) }))
	for _, command := range commands {
		values = append(values, command.(*redis.StringCmd).Val())
	}
	return values
}
