package main

import (
	"context"
	"io"
	"log"
	"os"
)

func main() {
	// net/http reports stray bytes of engines through the standard logger; what an
	// engine sends never reaches a log.
	log.SetOutput(io.Discard)
	newHeapPacer().pace()
	os.Exit(untilSignal(func(ctx context.Context) int {
		return run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	}))
}
