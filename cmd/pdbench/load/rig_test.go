package load

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"testing"

	"carryover/cmd/pdbench/engines"
)

// serveLoaded serves engines for one test, at a pace.
func serveLoaded(tb testing.TB, p engines.Pace) *engines.Pair {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	from, to := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- engines.Serve(ctx, to) }()
	tb.Cleanup(func() {
		cancel()
		must(tb, <-served)
	})
	line, err := bufio.NewReader(from).ReadBytes('\n')
	must(tb, err)
	e := &engines.Pair{}
	must(tb, json.Unmarshal(line, e))
	must(tb, e.Set(tb.Context(), p))
	return e
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
