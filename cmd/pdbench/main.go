package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"carryover/cmd/pdbench/bench"
	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/handback"
	"carryover/cmd/pdbench/result"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := program(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command runs a sub-command. It returns the exit code, 0 with an error for ExitUsage.
type command func(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error)

func commands() map[string]command {
	return map[string]command{
		"bench": bench.Command, "handback": handback.Command, "engines": enginesPart, "relay": relayPart,
	}
}

// program runs the sub-command that the first argument names, or bench, and returns its exit code.
func program(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	run := bench.Command
	if len(args) > 0 {
		if named, ok := commands()[args[0]]; ok {
			run, args = named, args[1:]
		}
	}
	code, err := run(ctx, args, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return result.ExitOK
	case err != nil:
		fmt.Fprintf(stderr, "pdbench: %v\n", err)
		return cmp.Or(code, result.ExitUsage)
	}
	return code
}

func enginesPart(ctx context.Context, _ []string, stdout, _ io.Writer) (int, error) {
	return 0, engines.Serve(ctx, stdout)
}

// relayPart serves the contender relay.
func relayPart(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	return 0, contender.ServeRelay(ctx, args, stdout, stderr)
}
