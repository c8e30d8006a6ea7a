package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

func rueidisOptions() rueidis.ClientOption {
	options := rueidis.ClientOption{}
	for _, port := range strings.Split(os.Getenv("PENSTOCK_PORTS"), ",")[:2] {
		options.InitAddress = append(options.InitAddress, "127.0.0.1:"+port)
	}
	return options
}

// rueidisCluster runs rueidis, which finds out by itself that its address is a cluster's. DoMulti is its pipeline.
func rueidisCluster(ctx context.Context) {
	client := rueidisClient{ctx, must(rueidis.NewClient(rueidisOptions()))}
	check("the mode", client.Mode(), rueidis.ClientModeCluster)
	for _, part := range []func(){
		client.single, client.pipelines, client.oneSlot, client.scripts, client.subscriptions, client.caching, client.replicas,
	} {
		part()
	}
	changes(client, "ru")
	check("values at the end", client.read(clusterNames("ru:%d", clusterKeys)), clusterNames("%d", clusterKeys))
	client.Close()
}

type rueidisClient struct {
	ctx context.Context
	rueidis.Client
}

func (client rueidisClient) do(words ...string) rueidis.RedisResult {
	return client.Do(client.ctx, client.command(words...))
}

func (client rueidisClient) command(words ...string) rueidis.Completed {
	return client.B().Arbitrary(words[0]).Keys(words[1]).Args(words[2:]...).Build()
}

// all runs one command for each key in a pipeline.
func (client rueidisClient) all(keys []string, words func(number int, key string) []string) []rueidis.RedisResult {
	var commands rueidis.Commands
	for number, key := range keys {
		commands = append(commands, client.command(words(number, key)...))
	}
	return client.DoMulti(client.ctx, commands...)
}

func (client rueidisClient) single() {
	for number, key := range clusterNames("ru:%d", clusterKeys) {
		check("SET", must(client.do("SET", key, fmt.Sprint(number)).ToString()), "OK")
	}
	for number, key := range clusterNames("ru:%d", clusterKeys) {
		check("GET", must(client.do("GET", key).ToString()), fmt.Sprint(number))
	}
}

func (client rueidisClient) pipelines() {
	keys := clusterNames("ru:p:%d", clusterDepth)
	must(0, client.write(keys))
	for number, result := range client.all(keys, func(_ int, key string) []string { return []string{"APPEND", key, "+"} }) {
		check("APPEND in a pipeline", must(result.AsInt64()), int64(len(keys[number])+1))
	}
	mixed := client.all(keys, func(number int, key string) []string {
		if number%100 == 0 {
			return []string{"LPUSH", key, "1"}
		}
		return []string{"GET", key}
	})
	for number, result := range mixed {
		if number%100 == 0 {
			refused("an error in its place", "WRONGTYPE Operation against a key holding the wrong kind of value", result.Error())
		} else {
			check("a value beside errors", must(result.ToString()), keys[number]+"+")
		}
	}
}

func (client rueidisClient) oneSlot() {
	must(0, client.Dedicated(func(own rueidis.DedicatedClient) error {
		must(0, own.Do(client.ctx, own.B().Watch().Key("{ru}a").Build()).Error())
		replies := own.DoMulti(
			client.ctx, own.B().Multi().Build(), own.B().Set().Key("{ru}a").Value("1").Build(), own.B().Incr().Key("{ru}a").Build(),
			own.B().Exec().Build(),
		)
		results := must(replies[3].ToArray())
		check("MULTI", must(results[1].AsInt64()), int64(2))
		return nil
	}))
	check("MSET", must(client.Do(client.ctx, client.B().Mset().KeyValue().KeyValue("{ru}b", "1").KeyValue("{ru}c", "2").Build()).ToString()), "OK")
	check("MGET", must(client.Do(client.ctx, client.B().Mget().Key("{ru}c", "{ru}b").Build()).AsStrSlice()), []string{"2", "1"})
	found := must(rueidis.MGet(client, client.ctx, []string{"ru:1", "ru:2"}))
	first, second := found["ru:1"], found["ru:2"]
	check("MGET over several slots", []string{must(first.ToString()), must(second.ToString())}, []string{"1", "2"})
	for address, node := range client.Nodes() {
		err := node.Do(client.ctx, node.B().Arbitrary("MGET", "ru:1", "ru:2").Build()).Error()
		refused("CROSSSLOT of "+address, crossSlot, err)
	}
}

func (client rueidisClient) scripts() {
	script := rueidis.NewLuaScript(`return {KEYS[1], redis.call("INCRBY", KEYS[1], ARGV[1])}`)
	for number, key := range clusterNames("ru:s:%d", 30) {
		reply := must(script.Exec(client.ctx, client, []string{key}, []string{fmt.Sprint(number)}).ToArray())
		check("EVALSHA", must(reply[1].AsInt64()), int64(number))
	}
}

func (client rueidisClient) subscriptions() {
	client.hear("ru:news", client.B().Subscribe().Channel("ru:news").Build(), func() rueidis.Completed {
		return client.B().Publish().Channel("ru:news").Message("hello").Build()
	})
	for _, channel := range clusterNames("ru:shard:%d", 6) {
		client.hear(channel, client.B().Ssubscribe().Channel(channel).Build(), func() rueidis.Completed {
			return client.B().Spublish().Channel(channel).Message("hello").Build()
		})
	}
}

// hear publishes until a message arrives: a message on the bus before its receiver has subscribed is lost.
func (client rueidisClient) hear(channel string, subscribe rueidis.Completed, publish func() rueidis.Completed) {
	ctx, cancel := context.WithCancel(client.ctx)
	heard := make(chan rueidis.PubSubMessage, 100)
	go client.Receive(ctx, subscribe, func(message rueidis.PubSubMessage) { heard <- message })
	defer cancel()
	for {
		must(0, client.Do(client.ctx, publish()).Error())
		select {
		case message := <-heard:
			check("the message", []string{message.Channel, message.Message}, []string{channel, "hello"})
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// caching reads keys of all nodes from the client's own memory, until another client changes them.
func (client rueidisClient) caching() {
	other := must(rueidis.NewClient(rueidisOptions()))
	defer other.Close()
	read := func(key string) rueidis.RedisResult {
		return client.DoCache(client.ctx, client.B().Get().Key(key).Cache(), time.Minute)
	}
	for number, key := range clusterNames("ru:%d", 30) {
		check("the first read", must(read(key).ToString()), fmt.Sprint(number))
		check("the second read is from memory", read(key).IsCacheHit(), true)
		must(0, other.Do(client.ctx, other.B().Set().Key(key).Value("new").Build()).Error())
		waitUntil("the change is seen", func() bool { return must(read(key).ToString()) == "new" })
		must(0, other.Do(client.ctx, other.B().Set().Key(key).Value(fmt.Sprint(number)).Build()).Error())
	}
}

func (client rueidisClient) replicas() {
	options := rueidisOptions()
	options.SendToReplicas = func(command rueidis.Completed) bool { return command.IsReadOnly() }
	reader := must(rueidis.NewClient(options))
	defer reader.Close()
	for number, key := range clusterNames("ru:%d", clusterKeys) {
		get := func() string { return must(reader.Do(client.ctx, reader.B().Get().Key(key).Build()).ToString()) }
		waitUntil("the replica has "+key, func() bool { return get() == fmt.Sprint(number) })
	}
	for _, node := range reader.Nodes() {
		info := must(node.Do(client.ctx, node.B().Info().Section("replication", "commandstats").Build()).ToString())
		check("each replica has answered", !strings.Contains(info, "role:slave") || strings.Contains(info, "cmdstat_get"), true)
	}
}

func (client rueidisClient) increase(keys []string) (replies []int64, err error) {
	for _, result := range client.all(keys, func(_ int, key string) []string { return []string{"INCR", key} }) {
		value, err := result.AsInt64()
		if err != nil {
			return nil, err
		}
		replies = append(replies, value)
	}
	return replies, nil
}

func (client rueidisClient) write(keys []string) error {
	for _, result := range client.all(keys, func(_ int, key string) []string { return []string{"SET", key, key} }) {
		if result.Error() != nil {
			return result.Error()
		}
	}
	return nil
}

func (client rueidisClient) read(keys []string) (values []string) {
	for _, result := range client.all(keys, func(_ int, key string) []string { return []string{"GET", key} }) {
		values = append(values, must(result.ToString()))
	}
	return values
}
