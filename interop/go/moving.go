package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	movingWriters = 8
	movingDepth   = 20
)

// movingReport is the last line of a client program: see moving_test.py.
type movingReport struct {
	Errors       []string `json:"errors"`
	LongestS     float64  `json:"longest_s"`
	Acknowledged []int64  `json:"acknowledged"`
	Pushed       int64    `json:"pushed"`
	Popped       int64    `json:"popped"`
}

// movingClient runs during planned failovers until its standard input ends.
type movingClient struct {
	client  *redis.Client
	lock    sync.Mutex
	stopped atomic.Bool
	report  movingReport
}

// timed runs a call. It notes its time beyond the allowed one, and its error.
func (m *movingClient) timed(allowed time.Duration, call func() error) bool {
	began := time.Now()
	err := call()
	m.lock.Lock()
	defer m.lock.Unlock()
	m.report.LongestS = max(m.report.LongestS, (time.Since(began) - allowed).Seconds())
	if err != nil && err != redis.Nil {
		m.report.Errors = append(m.report.Errors, err.Error())
	}
	return err == nil
}

func (m *movingClient) write(ctx context.Context, number int) {
	for !m.stopped.Load() {
		pipe := m.client.Pipeline()
		var last *redis.IntCmd
		for range movingDepth {
			last = pipe.Incr(ctx, fmt.Sprintf("count:%d", number))
		}
		if m.timed(0, func() error { _, err := pipe.Exec(ctx); return err }) {
			m.report.Acknowledged[number] = last.Val()
		}
		time.Sleep(time.Millisecond)
	}
}

func (m *movingClient) push(ctx context.Context) {
	for !m.stopped.Load() {
		if m.timed(0, func() error { return m.client.RPush(ctx, "queue", m.report.Pushed).Err() }) {
			m.report.Pushed++
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (m *movingClient) pop(ctx context.Context) {
	for !m.stopped.Load() {
		if m.timed(time.Second, func() error { return m.client.BLPop(ctx, time.Second, "queue").Err() }) {
			m.report.Popped++
		}
	}
}

func moving(ctx context.Context) {
	options := must(redis.ParseURL(os.Getenv("PENSTOCK_URL")))
	m := &movingClient{client: redis.NewClient(options)}
	m.report = movingReport{Errors: []string{}, Acknowledged: make([]int64, movingWriters)}
	var workers sync.WaitGroup
	for number := range movingWriters {
		workers.Go(func() { m.write(ctx, number) })
	}
	workers.Go(func() { m.push(ctx) })
	workers.Go(func() { m.pop(ctx) })
	fmt.Println("running")
	must(io.Copy(io.Discard, os.Stdin))
	m.stopped.Store(true)
	workers.Wait()
	fmt.Println(string(must(json.Marshal(m.report))))
}
