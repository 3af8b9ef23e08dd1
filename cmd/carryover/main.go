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
