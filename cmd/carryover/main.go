// Command carryover is a multi-turn proxy in front of disaggregated (prefill and decode) vLLM instances.
//
// The packages beside it are its parts. Package cli is the tree of commands and says what the exit codes mean; config reads flags,
// environment and configuration file; app puts the program together and runs it; doctor and demo are commands of their own.
// Package e2e tests the whole.
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
	// net/http reports stray bytes of engines through the standard logger; what an
	// engine sends never reaches a log.
	log.SetOutput(io.Discard)
	app.PaceCollector()
	os.Exit(app.UntilSignal(func(ctx context.Context) int {
		return cli.Run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	}))
}
