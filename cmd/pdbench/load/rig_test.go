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
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	line, err := bufio.NewReader(from).ReadBytes('\n')
	if err != nil {
		tb.Fatal(err)
	}
	e := &engines.Pair{}
	if err := json.Unmarshal(line, e); err != nil {
		tb.Fatal(err)
	}
	if err := e.Set(tb.Context(), p); err != nil {
		tb.Fatal(err)
	}
	return e
}
