package main

import (
	"context"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

const pageOfAbort = "../docs/pipeline-control.md"

// runUntilFailure runs the commands up to the first failing one, and returns the server's account.
func runUntilFailure(ctx context.Context, client *redis.Client, commands ...[]any) (map[any]any, error) {
	pipeline := client.Pipeline()
	pipeline.Do(ctx, "PIPELINE", "ABORT", "ON")
	for _, command := range commands {
		pipeline.Do(ctx, command...)
	}
	account := pipeline.Do(ctx, "PIPELINE", "SYNC")
	pipeline.Do(ctx, "PIPELINE", "ABORT", "OFF")
	// Exec returns the first error, which the account has as well.
	_, _ = pipeline.Exec(ctx)
	reply, err := account.Result()
	if err != nil {
		return nil, err
	}
	// With Protocol: 2, the reply is a []any of names and values.
	return reply.(map[any]any), nil
}

// abortAtFailure runs the page's example, which this file must have as the page shows it.
func abortAtFailure(ctx context.Context) {
	page := string(must(os.ReadFile(pageOfAbort)))
	_, rest, _ := strings.Cut(page, "```go\n")
	example, _, _ := strings.Cut(rest, "```")
	source := string(must(os.ReadFile("go/abort.go")))
	check("the page's example is in the source", strings.Contains(source, example), true)

	client := connect(3)
	defer client.Close()
	text := "ERR value is not an integer or out of range"
	account := must(runUntilFailure(ctx, client, []any{"set", "color", "red"}, []any{"incr", "color"}, []any{"set", "color", "blue"}))
	check("the account", account, map[any]any{"executed": int64(2), "failed": int64(2), "error": text, "skipped": int64(1)})
	check("the value", must(client.Get(ctx, "color").Result()), "red")
	account = must(runUntilFailure(ctx, client, []any{"get", "color"}))
	check("no failure", account, map[any]any{"executed": int64(1), "failed": int64(0), "error": nil, "skipped": int64(0)})
	check("no mode is left", client.Do(ctx, "pipeline", "sync").Err() != nil, true)
}
