// Command carryover is a multi-turn proxy in front of disaggregated (prefill and decode) vLLM instances.
//
// Package cli has the tree of commands, config reads the settings, and app builds and runs the proxy.
package main

import (
	"context"
	"io"
	"log"
	"os"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/cli"
)

func main() {
	// net/http logs stray bytes of engines through the standard logger. Bytes of an engine must never reach a log.
	log.SetOutput(io.Discard)
	app.PaceCollector()
	os.Exit(app.UntilSignal(func(ctx context.Context) int {
		return cli.Run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	}))
}
