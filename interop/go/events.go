package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	clusterKeys = 200
	// Commands of one pipeline.
	clusterDepth = 2000
	// Keys of the slot that moves.
	clusterMoving = 1000
)

// event sends a request to the cluster's harness (see ../cluster.py), and returns its answer.
func event(request string) string {
	connection := must(net.Dial("tcp", "127.0.0.1:"+os.Getenv("PENSTOCK_EVENTS")))
	defer connection.Close()
	must(fmt.Fprintln(connection, request))
	return strings.TrimSpace(must(bufio.NewReader(connection).ReadString('\n')))
}

// during repeats work until the event is over.
func during(request string, work func()) {
	answer := make(chan string, 1)
	go func() { answer <- event(request) }()
	for {
		work()
		select {
		case text := <-answer:
			check(request, text, "ok")
			return
		default:
		}
	}
}

// untilDone repeats work until it succeeds, as an application does while a shard has no primary.
func untilDone(work func() error) {
	deadline := time.Now().Add(patience / 2)
	for err := work(); err != nil; err = work() {
		if time.Now().After(deadline) {
			fail("no success: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A clusterClient runs pipelines over any slots, and returns the replies in order.
type clusterClient interface {
	increase(keys []string) ([]int64, error)
	write(keys []string) error
	read(keys []string) []string
}

// counters are increased while the cluster changes. Each INCR must be carried out once.
type counters struct {
	client clusterClient
	keys   []string
	rounds int64
}

func clusterNames(format string, count int) []string {
	var names []string
	for number := range count {
		names = append(names, fmt.Sprintf(format, number))
	}
	return names
}

func (all *counters) increase() {
	all.rounds++
	replies := must(all.client.increase(all.keys))
	check("INCR in a pipeline", replies, slices.Repeat([]int64{all.rounds}, len(all.keys)))
}

func (all *counters) verify() {
	check("counters", all.client.read(all.keys), slices.Repeat([]string{fmt.Sprint(all.rounds)}, len(all.keys)))
}

// reshard lets slots move while the client writes, and returns its counters.
func reshard(client clusterClient, prefix string) *counters {
	moving := &counters{client: client, keys: clusterNames("{"+event("tag")+"}"+prefix+":%d", clusterMoving)}
	moving.increase()
	during("reshard", moving.increase)
	moving.verify()
	return moving
}

// changes lets slots move, a replica take over, and a primary die, while the client writes. The client must follow redirects.
func changes(client clusterClient, prefix string) {
	moving := reshard(client, prefix)
	var moved, asked int
	must(fmt.Sscan(event("redirects"), &moved, &asked))
	check(fmt.Sprintf("%d MOVED and %d ASK were followed", moved, asked), moved > 0 && asked > 0, true)

	kept := counters{client: client, keys: clusterNames(prefix+":f:%d", clusterKeys)}
	kept.increase()
	during("failover", kept.increase)
	for range 5 {
		kept.increase()
	}
	kept.verify()

	check("kill", event("kill"), "ok")
	keys := clusterNames(prefix+":k:%d", 2000)
	untilDone(func() error { return client.write(keys) })
	check("values after a kill", client.read(keys), keys)
	moving.verify()
	kept.verify()
}
