//go:build !race

package server_test

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// While a stream is relayed, the frames between its connection and the relay fit into a quarter of 8 KiB, so that the runtime keeps its stack
// at 8 KiB and not at 16 (turn.Handler.Serve). The race detector makes frames larger.
func TestStream_HoldsAStackOf8KiB(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, setup{cfg: byTokens})
	r.prefill[0].always(prefillsIDs)
	r.decode[0].always(func(w http.ResponseWriter, req *http.Request, l leg) {
		events := answerOf(l).events()
		say(w, events[:2]...)
		select {
		case <-gate:
			say(w, events[2:]...)
		case <-req.Context().Done():
		}
	})
	const streams = 64
	before := stacks()
	for range streams {
		resp, err := r.open(t.Context(), http.MethodPost, textPath, strings.NewReader(askIDs("", true, count(10, 40)...)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		readUntil(t, resp.Body, "data: ")
		defer io.Copy(io.Discard, resp.Body) //nolint:errcheck // the test is over; deferred calls run backwards
	}
	// With the goroutines of client and engine, a stream takes 28 KB of stacks, and 37 where the turn's stack is of 16 KiB.
	if each := (stacks() - before) / streams; each > 32<<10 {
		t.Errorf("a stream takes %d bytes of stacks, that of its turn among them; want 32 KiB or less", each)
	}
	close(gate)
}

// stacks returns the bytes of stacks in use once no goroutine has a larger one than it needs.
func stacks() uint64 {
	for range 5 { // each collection halves a stack at most
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.StackInuse
}
