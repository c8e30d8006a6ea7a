package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	ringKeys = 600
	shards   = 3
)

// ringServers are the servers of the ring, and after them the one that replaces one of them.
type ringServers struct {
	ports   []string
	clients []*redis.Client
}

// ring is what docs/scaling.md says of go-redis's Ring: three servers that the client spreads keys over, and a fourth that
// replaces one of them.
func ring(ctx context.Context) {
	servers := ringServers{ports: strings.Split(os.Getenv("PENSTOCK_PORTS"), ",")}
	for _, port := range servers.ports {
		servers.clients = append(servers.clients, redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, MaxRetries: -1}))
	}
	for _, protocol := range []int{2, 3} {
		client := redis.NewRing(&redis.RingOptions{Addrs: servers.addresses(1), Protocol: protocol})
		for _, part := range []func(context.Context, *redis.Ring, ringServers){
			ringSpread, ringPipelines, ringSeveralKeys, ringTransactions, ringScripts, ringBlocking, ringStreams, ringSubscriptions,
		} {
			part(ctx, client, servers)
		}
		if protocol == 3 {
			ringReplacement(ctx, client, servers)
		}
		must(0, client.Close())
	}
}

// addresses names three servers; the second name is the address of the server at this place of the list.
func (servers ringServers) addresses(second int) map[string]string {
	address := func(number int) string { return "127.0.0.1:" + servers.ports[number] }
	return map[string]string{"first": address(0), "second": address(second), "third": address(2)}
}

// sizes is how many keys each of the three servers has.
func (servers ringServers) sizes(ctx context.Context) (sizes []int64, sum int64) {
	for _, client := range servers.clients[:shards] {
		size := must(client.DBSize(ctx).Result())
		sizes, sum = append(sizes, size), sum+size
	}
	return sizes, sum
}

func waitUntil(what string, holds func() bool) {
	for deadline := time.Now().Add(patience / 2); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			fail("waited in vain until %s", what)
		}
	}
}

func ringKey(number int) (key, value string) {
	return fmt.Sprintf("key:%d", number), fmt.Sprintf("value:%d", number)
}

func allFound(ctx context.Context, client *redis.Ring, moment string) {
	for number := range ringKeys {
		key, value := ringKey(number)
		found, err := client.Get(ctx, key).Result()
		check(key+", "+moment, []any{found, err}, []any{value, nil})
	}
}

func ringSpread(ctx context.Context, client *redis.Ring, servers ringServers) {
	must(0, client.ForEachShard(ctx, func(ctx context.Context, shard *redis.Client) error { return shard.FlushAll(ctx).Err() }))
	for number := range ringKeys {
		key, value := ringKey(number)
		check("SET", must(client.Set(ctx, key, value, 0).Result()), "OK")
	}
	allFound(ctx, client, "at first")
	sizes, sum := servers.sizes(ctx)
	check("keys on all servers", sum, int64(ringKeys))
	for _, size := range sizes {
		check(fmt.Sprintf("no server has less than half of its share: %v", sizes), size > ringKeys/shards/2, true)
	}
}

func ringPipelines(ctx context.Context, client *redis.Ring, _ ringServers) {
	commands := must(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range ringKeys {
			key, _ := ringKey(number)
			pipe.Get(ctx, key)
			pipe.Incr(ctx, fmt.Sprintf("count:%d", number%7))
		}
		return nil
	}))
	for number := range ringKeys {
		_, value := ringKey(number)
		check("GET in a pipeline", commands[2*number].(*redis.StringCmd).Val(), value)
		check("INCR in a pipeline", commands[2*number+1].(*redis.IntCmd).Val(), int64(number/7+1))
	}
}

func ringSeveralKeys(ctx context.Context, client *redis.Ring, servers ringServers) {
	must(client.SAdd(ctx, "{m}a", 1, 2).Result())
	must(client.SAdd(ctx, "b:{m}", 2, 3).Result())
	check("SUNIONSTORE", must(client.SUnionStore(ctx, "all{m}", "{m}a", "b:{m}").Result()), int64(3))
	check("SINTER", must(client.SInter(ctx, "{m}a", "b:{m}").Result()), []string{"2"})
	check("MSET", must(client.MSet(ctx, "{n}a", 1, "{n}b", 2).Result()), "OK")
	check("MGET", must(client.MGet(ctx, "{n}b", "{n}a", "{n}c").Result()), []any{"2", "1", nil})
	check("GET after MSET", must(client.Get(ctx, "{n}b").Result()), "2")
	check("DEL", must(client.Del(ctx, "{n}a", "{n}b").Result()), int64(2))
	// Nothing is refused: without a mark, all goes to the server of the first key.
	_, before := servers.sizes(ctx)
	var pairs []any
	for number := range 30 {
		pairs = append(pairs, fmt.Sprintf("unmarked:%d", number), number)
	}
	must(client.MSet(ctx, pairs...).Result())
	_, after := servers.sizes(ctx)
	found := int64(0)
	for number := range 30 {
		found += must(client.Exists(ctx, fmt.Sprintf("unmarked:%d", number)).Result())
	}
	check("MSET without a mark", after-before, int64(30))
	check(fmt.Sprintf("of MSET without a mark, only some are found: %d", found), found > 0 && found < 30, true)
	check("the first is", must(client.Exists(ctx, "unmarked:0").Result()), int64(1))
	// What has no key goes to any one server.
	check("DBSIZE is of one server", must(client.DBSize(ctx).Result()) < after, true)
	var sum atomic.Int64
	must(0, client.ForEachShard(ctx, func(ctx context.Context, shard *redis.Client) error {
		size, err := shard.DBSize(ctx).Result()
		sum.Add(size)
		return err
	}))
	check("DBSIZE of each server", sum.Load(), after)
}

func ringTransactions(ctx context.Context, client *redis.Ring, servers ringServers) {
	commands := must(client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "{t}count", 1, 0)
		pipe.RPush(ctx, "{t}log", "a", "b")
		return nil
	}))
	check("RPUSH in a transaction", commands[1].(*redis.IntCmd).Val(), int64(2))
	attempts := 0
	must(0, client.Watch(ctx, func(tx *redis.Tx) error {
		attempts++
		value := must(tx.Get(ctx, "{t}count").Int())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "{t}count", value+1, 0)
			return nil
		})
		return err
	}, "{t}count", "{t}log"))
	err := client.Watch(ctx, func(tx *redis.Tx) error {
		attempts++
		must(client.Set(ctx, "{t}count", 7, 0).Result())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "{t}count", 0, 0)
			return nil
		})
		return err
	}, "{t}count")
	check("a transaction after a change", errors.Is(err, redis.TxFailedErr), true)
	check("what is there", []any{attempts, must(client.Get(ctx, "{t}count").Result())}, []any{2, "7"})
	var keys []string
	for number := range ringKeys {
		key, _ := ringKey(number)
		keys = append(keys, key)
	}
	err = client.Watch(ctx, func(*redis.Tx) error { return nil }, keys...)
	refused("WATCH of keys on several servers", "redis: Watch requires all keys to be in the same shard", err)
	// A transaction on several servers is not refused: it is one on each of them.
	for _, server := range servers.clients[:shards] {
		must(server.ConfigResetStat(ctx).Result())
	}
	must(client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range ringKeys {
			key, value := ringKey(number)
			pipe.Set(ctx, key, value, 0)
		}
		return nil
	}))
	for _, server := range servers.clients[:shards] {
		calls := must(server.InfoMap(ctx, "commandstats").Result())["Commandstats"]["cmdstat_exec"]
		check("EXEC on each server: "+calls, strings.HasPrefix(calls, "calls=1,"), true)
	}
	allFound(ctx, client, "after transactions")
}

func ringScripts(ctx context.Context, client *redis.Ring, servers ringServers) {
	script := redis.NewScript(`redis.call("set", KEYS[1], ARGV[1]) return {redis.call("incr", KEYS[1]), redis.call("incr", KEYS[2])}`)
	keys := []string{"{s}a", "{s}b"}
	check("EVAL", must(script.Eval(ctx, client, keys, 4).Result()), []any{int64(5), int64(1)})
	check("EVALSHA", must(script.EvalSha(ctx, client, keys, 4).Result()), []any{int64(5), int64(2)})
	for number := range 20 {
		keys := []string{fmt.Sprintf("{s%d}a", number), fmt.Sprintf("{s%d}b", number)}
		check("Run", must(script.Run(ctx, client, keys, number).Result()), []any{int64(number + 1), int64(1)})
	}
	sum := must(client.ScriptLoad(ctx, fmt.Sprint("return ", client.Options().Protocol)).Result())
	loaded := 0
	for _, server := range servers.clients[:shards] {
		if must(server.ScriptExists(ctx, sum).Result())[0] {
			loaded++
		}
	}
	check("SCRIPT LOAD reaches one server", loaded, 1)
}

func ringBlocking(ctx context.Context, client *redis.Ring, _ ringServers) {
	refused("BLPOP of nothing", "redis: nil", client.BLPop(ctx, time.Second, "{q}one").Err())
	popped := make(chan []string)
	go func() { popped <- client.BLPop(ctx, patience, "{q}one", "{q}two").Val() }()
	untilBlocked(ctx, must(client.GetShardClientForKey("{q}one")), 1)
	must(client.RPush(ctx, "{q}two", "job").Result())
	check("BLPOP", <-popped, []string{"{q}two", "job"})
}

func ringStreams(ctx context.Context, client *redis.Ring, _ ringServers) {
	// More than one stream, so that not all are on the server of the first.
	for number := range 12 {
		stream := fmt.Sprintf("stream:%d", number)
		id := must(client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"field", number}}).Result())
		entries := []redis.XStream{{Stream: stream, Messages: []redis.XMessage{{ID: id, Values: map[string]any{"field": fmt.Sprint(number)}}}}}
		read := must(client.XRead(ctx, &redis.XReadArgs{Streams: []string{stream, "0"}, Count: 9, Block: time.Second}).Result())
		check("XREAD", read, entries)
		must(client.XGroupCreate(ctx, stream, "group", "0").Result())
		group := &redis.XReadGroupArgs{Group: "group", Consumer: "me", Streams: []string{stream, ">"}, Count: 9, Block: time.Second}
		check("XREADGROUP", must(client.XReadGroup(ctx, group).Result()), entries)
		check("XACK", must(client.XAck(ctx, stream, "group", id).Result()), int64(1))
	}
}

func ringSubscriptions(ctx context.Context, client *redis.Ring, _ ringServers) {
	channels := client.Subscribe(ctx, "{c}one", "{c}two")
	patterns := client.PSubscribe(ctx, "{c}*")
	for range 2 {
		must(channels.Receive(ctx))
	}
	must(patterns.Receive(ctx))
	check("PUBLISH", must(client.Publish(ctx, "{c}two", "hello").Result()), int64(2))
	message := must(channels.ReceiveMessage(ctx))
	check("the message", []string{message.Channel, message.Payload}, []string{"{c}two", "hello"})
	message = must(patterns.ReceiveMessage(ctx))
	check("by its pattern", []string{message.Channel, message.Pattern}, []string{"{c}two", "{c}*"})
	must(0, errors.Join(channels.Close(), patterns.Close()))
	// All channels of one subscription are on the server of the first: of the others, some are never heard.
	var names []string
	for number := range 30 {
		names = append(names, fmt.Sprintf("unmarked:%d", number))
	}
	channels = client.Subscribe(ctx, names...)
	for range names {
		must(channels.Receive(ctx))
	}
	heard := int64(0)
	for _, name := range names {
		heard += must(client.Publish(ctx, name, "hello").Result())
	}
	check(fmt.Sprintf("of channels without a mark, only some are heard: %d", heard), heard > 0 && heard < 30, true)
	must(0, channels.Close())
}

// ringReplacement shuts the second server down; its replica takes its name, and no key moves.
func ringReplacement(ctx context.Context, client *redis.Ring, servers ringServers) {
	old, replica := servers.clients[1], servers.clients[3]
	must(replica.SlaveOf(ctx, "127.0.0.1", servers.ports[1]).Result())
	waitUntil("the link is up", func() bool {
		return must(replica.InfoMap(ctx, "replication").Result())["Replication"]["master_link_status"] == "up"
	})
	size := must(old.DBSize(ctx).Result())
	waitUntil("the replica has all", func() bool { return must(replica.DBSize(ctx).Result()) == size })
	old.ShutdownNoSave(ctx)
	waitUntil("the server is away", func() bool { return old.Ping(ctx).Err() != nil })
	must(replica.SlaveOf(ctx, "NO", "ONE").Result())
	// The client takes a server that is away from the ring: its keys are then missed on the others.
	waitUntil("the client leaves it out", func() bool { return client.Len() == shards-1 })
	missed := int64(0)
	for number := range ringKeys {
		key, _ := ringKey(number)
		missed += 1 - must(client.Exists(ctx, key).Result())
	}
	keys := must(replica.Keys(ctx, "key:*").Result())
	check("keys that are missed", missed, int64(len(keys)))
	must(client.Set(ctx, keys[0], "written to another server", 0).Result())
	check("what is written meanwhile", must(client.Get(ctx, keys[0]).Result()), "written to another server")
	// With a check that always says yes, they are errors.
	strict := redis.NewRing(&redis.RingOptions{
		Addrs: servers.addresses(1), HeartbeatFrequency: 10 * time.Millisecond, MaxRetries: -1, DialerRetries: 1,
		HeartbeatFn: func(context.Context, *redis.Client) bool { return true },
	})
	time.Sleep(200 * time.Millisecond)
	check("servers of a client that leaves none out", strict.Len(), shards)
	var lost *net.OpError
	check("GET of a server that is away", errors.As(strict.Get(ctx, keys[0]).Err(), &lost), true)
	must(0, strict.Close())
	client.SetAddrs(servers.addresses(3))
	check("servers", client.Len(), shards)
	allFound(ctx, client, "after the replacement")
}
