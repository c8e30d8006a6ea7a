package main

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// row is a call that was made, or queued in a pipeline, and the reply it must have at the end.
type row struct {
	command redis.Cmder
	reply   any
}

// none is the reply of a call that finds nothing.
var none = redis.Nil

// calls makes all of the table's calls on c, in order: Go evaluates a composite literal's calls from left to right.
func calls(x context.Context, c redis.Cmdable) []row {
	rows := stringCalls(x, c)
	for _, more := range []func(context.Context, redis.Cmdable) []row{keyCalls, hashCalls, listCalls, setCalls, sortedSetCalls} {
		rows = append(rows, more(x, c)...)
	}
	return rows
}

func stringCalls(x context.Context, c redis.Cmdable) []row {
	return []row{
		{c.FlushDB(x), "OK"},
		{c.Set(x, "s", "1", 0), "OK"},
		{c.SetNX(x, "s", "2", 0), false},
		{c.SetXX(x, "s", "2", time.Minute), true},
		{c.SetArgs(x, "s", "3", redis.SetArgs{Get: true, KeepTTL: true}), "2"},
		{c.TTL(x, "s"), time.Minute},
		{c.Persist(x, "s"), true},
		{c.Incr(x, "s"), int64(4)},
		{c.IncrByFloat(x, "s", 0.5), 4.5},
		{c.Append(x, "s", "é"), int64(5)},
		{c.GetRange(x, "s", 0, 2), "4.5"},
		{c.GetEx(x, "s", time.Second), "4.5é"},
		{c.GetDel(x, "s"), "4.5é"},
		{c.Get(x, "s"), none},
		{c.MSet(x, "a", 1, "b", 2), "OK"},
		{c.MGet(x, "a", "none"), []any{"1", nil}},
		{c.MSetNX(x, "a", 1, "c", 1), false},
		{c.Echo(x, "x"), "x"},
		{c.Ping(x), "PONG"},
	}
}

func keyCalls(x context.Context, c redis.Cmdable) []row {
	return []row{
		{c.Exists(x, "a", "b", "none"), int64(2)},
		{c.Type(x, "a"), "string"},
		{c.Expire(x, "a", time.Minute), true},
		{c.ExpireGT(x, "a", time.Second), false},
		{c.TTL(x, "b"), time.Duration(-1)},
		{c.TTL(x, "none"), time.Duration(-2)},
		{c.Copy(x, "a", "d", 0, false), int64(1)},
		{c.Rename(x, "b", "e"), "OK"},
		{c.ObjectEncoding(x, "e"), "int"},
		{c.Unlink(x, "a", "d", "e"), int64(3)},
		{c.RandomKey(x), none},
		{c.DBSize(x), int64(0)},
		{c.RPush(x, "sort", 3, 1, 2), int64(3)},
		{c.Sort(x, "sort", &redis.Sort{Order: "DESC"}), []string{"3", "2", "1"}},
		{c.Del(x, "sort"), int64(1)},
	}
}

func hashCalls(x context.Context, c redis.Cmdable) []row {
	return []row{
		{c.HSet(x, "h", "f", "v", "g", 1), int64(2)},
		{c.HSetNX(x, "h", "f", "w"), false},
		{c.HGet(x, "h", "f"), "v"},
		{c.HGet(x, "h", "none"), none},
		{c.HMGet(x, "h", "f", "none"), []any{"v", nil}},
		{c.HGetAll(x, "h"), map[string]string{"f": "v", "g": "1"}},
		{c.HIncrBy(x, "h", "g", 41), int64(42)},
		{c.HIncrByFloat(x, "h", "g", 0.5), 42.5},
		{c.HKeys(x, "h"), []string{"f", "g"}},
		{c.HVals(x, "h"), []string{"v", "42.5"}},
		{c.HDel(x, "h", "f", "none"), int64(1)},
		{c.HRandFieldWithValues(x, "h", 5), []redis.KeyValue{{Key: "g", Value: "42.5"}}},
		{c.HLen(x, "h"), int64(1)},
	}
}

func listCalls(x context.Context, c redis.Cmdable) []row {
	return []row{
		{c.RPush(x, "l", "a", "b", "c"), int64(3)},
		{c.LPush(x, "l", "z"), int64(4)},
		{c.LRange(x, "l", 0, -1), []string{"z", "a", "b", "c"}},
		{c.LPos(x, "l", "c", redis.LPosArgs{}), int64(3)},
		{c.LInsertBefore(x, "l", "b", "y"), int64(5)},
		{c.LIndex(x, "l", 2), "y"},
		{c.LIndex(x, "l", 9), none},
		{c.LPopCount(x, "l", 3), []string{"z", "a", "y"}},
		{c.RPop(x, "l"), "c"},
		{c.LMove(x, "l", "m", "LEFT", "RIGHT"), "b"},
		{c.LPop(x, "l"), none},
		{c.BLPop(x, time.Second, "l", "m"), []string{"m", "b"}},
	}
}

func setCalls(x context.Context, c redis.Cmdable) []row {
	return []row{
		{c.SAdd(x, "t", "a", "b", "c"), int64(3)},
		{c.SIsMember(x, "t", "a"), true},
		{c.SMIsMember(x, "t", "a", "none"), []bool{true, false}},
		{c.SRem(x, "t", "b", "c"), int64(2)},
		{c.SMembers(x, "t"), []string{"a"}},
		{c.SMembersMap(x, "t"), map[string]struct{}{"a": {}}},
		{c.SAdd(x, "u", "a", "x"), int64(2)},
		{c.SInter(x, "t", "u"), []string{"a"}},
		{c.SInterCard(x, 0, "t", "u"), int64(1)},
		{c.SDiffStore(x, "d", "u", "t"), int64(1)},
		{c.SPop(x, "t"), "a"},
		{c.SPop(x, "t"), none},
	}
}

func sortedSetCalls(x context.Context, c redis.Cmdable) []row {
	return []row{
		{c.ZAdd(x, "z", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}), int64(2)},
		{c.ZAddNX(x, "z", redis.Z{Score: 9, Member: "a"}), int64(0)},
		{c.ZAddArgsIncr(x, "z", redis.ZAddArgs{Members: []redis.Z{{Score: 2, Member: "a"}}}), 3.0},
		{c.ZScore(x, "z", "b"), 2.5},
		{c.ZScore(x, "z", "none"), none},
		{c.ZMScore(x, "z", "a", "none"), []float64{3, 0}},
		{c.ZRange(x, "z", 0, -1), []string{"b", "a"}},
		{c.ZRangeWithScores(x, "z", 0, -1), []redis.Z{{Score: 2.5, Member: "b"}, {Score: 3, Member: "a"}}},
		{c.ZRangeByScore(x, "z", &redis.ZRangeBy{Min: "(2.5", Max: "+inf"}), []string{"a"}},
		{c.ZRank(x, "z", "a"), int64(1)},
		{c.ZIncrBy(x, "z", math.Inf(1), "a"), math.Inf(1)},
		{c.ZCount(x, "z", "-inf", "3"), int64(1)},
		{c.ZUnionStore(x, "w", &redis.ZStore{Keys: []string{"z", "z"}, Weights: []float64{1, 2}}), int64(2)},
		{c.ZInterWithScores(x, &redis.ZStore{Keys: []string{"z", "w"}, Aggregate: "MIN"}),
			[]redis.Z{{Score: 2.5, Member: "b"}, {Score: math.Inf(1), Member: "a"}}},
		{c.ZPopMin(x, "z"), []redis.Z{{Score: 2.5, Member: "b"}}},
		{c.ZPopMax(x, "z", 5), []redis.Z{{Score: math.Inf(1), Member: "a"}}},
		{c.ZCard(x, "z"), int64(0)},
	}
}

// reply is what a command was answered: its error, or its value by the method Val that each kind of command has.
func reply(command redis.Cmder) any {
	if err := command.Err(); err != nil {
		return err
	}
	return reflect.ValueOf(command).MethodByName("Val").Call(nil)[0].Interface()
}

func checkRows(way string, rows []row) {
	for _, row := range rows {
		check(fmt.Sprint(way, ": ", row.command.Args()), reply(row.command), row.reply)
	}
}

// table makes the calls on the client itself, in a pipeline and in a transaction.
func table(x context.Context, client *redis.Client) {
	way := fmt.Sprint("RESP", client.Options().Protocol)
	checkRows(way+", one by one", calls(x, client))
	for what, pipeline := range map[string]redis.Pipeliner{
		"pipelined": client.Pipeline(), "in a transaction": client.TxPipeline(),
	} {
		rows := calls(x, pipeline)
		commands, _ := pipeline.Exec(x)
		check(way+", commands "+what, len(commands), len(rows))
		checkRows(way+", "+what, rows)
	}
}
