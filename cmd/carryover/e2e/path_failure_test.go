package e2e

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"
)

// failing is a file that says what becomes of turns whose prefill fails.
func failing(policy string) string { return "routing: {prefill_failure: " + policy + "}\n" }

// outcome is what a client is told of a turn whose prefill has failed.
type outcome struct {
	path string // how X-KV-Path begins
	code string // of the error instead
}

// held is clients that have streams open which do not end.
type held struct {
	cancels []context.CancelFunc
	group   sync.WaitGroup
}

// leave has all clients go.
func (h *held) leave() {
	for _, cancel := range h.cancels {
		cancel()
	}
	h.group.Wait()
}

// crowd opens so many streams of a tenant and returns when each has had its first event. Decode has to be slow.
func (o *operated) crowd(t *testing.T, tenant string, n int) *held {
	t.Helper()
	h := &held{}
	for range n {
		began := o.open(t, h, tenant)
		select {
		case a := <-began:
			if a != nil {
				t.Fatalf("got status %d instead of a stream: %.300s", a.status, a.raw)
			}
		case <-time.After(time.Minute):
			t.Fatal("a stream does not begin")
		}
	}
	return h
}

// open sends a turn whose stream does not end until its client leaves. began gets nil at its first event, or else the answer.
func (o *operated) open(t *testing.T, h *held, tenant string) (began chan *answered) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h.cancels = append(h.cancels, cancel)
	began = make(chan *answered, 1) // one word
	h.group.Go(func() {
		streams := false
		a, _ := o.try(ctx, t, tenant, map[string]any{
			"model": "sim", "messages": []json.RawMessage{question("Go on. SAY " + longText(1))}, "max_tokens": 400, "stream": true,
		}, func(event int, _ []byte) {
			if event == 1 {
				streams = true
				began <- nil
			}
		})
		if !streams {
			began <- a
		}
	})
	return began
}
