package server_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/server"
)

// running is a server under Run on a listener of its own.
type running struct {
	*rig
	url    string
	stop   context.CancelFunc
	result chan error
}

func run(t *testing.T, s setup) *running {
	t.Helper()
	r := &running{rig: newRig(t, s), result: make(chan error, 1)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.front.Close()
	r.url = "http://" + listener.Addr().String()
	r.front.URL = r.url
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	go func() { r.result <- r.server.Run(ctx, listener) }()
	t.Cleanup(func() {
		r.stop()
		if r.result != nil {
			r.end()
		}
	})
	return r
}

// end waits for Run to return.
func (r *running) end() {
	r.t.Helper()
	select {
	case err := <-r.result:
		if err != nil {
			r.t.Errorf("got %v from Run, want nil after a drain", err)
		}
	case <-time.After(2 * patience):
		r.t.Fatal("Run does not return")
	}
	r.result = nil
}

// openStreams opens n streams and returns them when each has its first event.
func (r *running) openStreams(n int) []*http.Response {
	r.t.Helper()
	streams := make([]*http.Response, n)
	errs := make(chan error, n)
	for i := range streams {
		go func() {
			resp, err := r.open(context.Background(), http.MethodPost, chatPath, strings.NewReader(ask(fmt.Sprint("c", i), true, "question 1")))
			streams[i] = resp
			errs <- err
		}()
	}
	for range streams {
		if err := <-errs; err != nil {
			r.t.Fatal(err)
		}
	}
	return streams
}

// half streams until the gate, then the rest if it is opened.
func half(gate <-chan struct{}, started *atomic.Int64) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		say(w, chatEvents(l)[:2]...)
		started.Add(1)
		waits(gate, func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, chatEvents(l)[2:]...) })(w, r, l)
	}
}

func TestDrain_StreamsFinishWithinTheGrace(t *testing.T) {
	const n = 200
	r := run(t, setup{})
	gate, started := make(chan struct{}), atomic.Int64{}
	r.decode[0].always(half(gate, &started))
	if p := r.get("/readyz"); p.status != 200 {
		t.Errorf("got /readyz %d before the drain", p.status)
	}
	streams := r.openStreams(n)
	r.stop()
	r.until(func() bool { return r.log.count(`"msg":"draining"`) == 1 })
	p := r.get("/readyz")
	if p.status != 503 || !strings.Contains(p.body, "draining") {
		t.Errorf("got /readyz %d %q, want 503 at once", p.status, p.body)
	}
	close(gate)
	whole := 0
	byID := map[string]leg{}
	for _, l := range r.decode[0].seen() {
		byID[l.id()] = l
	}
	for _, resp := range streams {
		p := r.rest(resp)
		if p.err == nil && p.body == chatBytes(byID[p.header.Get("X-Request-Id")]) {
			whole++
		} else {
			t.Logf("got %q, %v", p.body, p.err)
		}
	}
	if whole != n {
		t.Errorf("got %d byte-exact streams of %d; log ends with:\n%s", whole, n, r.log.end())
	}
	r.end()
	if got := r.store.Len(); got != n {
		t.Errorf("got %d tickets, want %d: puts go on while draining", got, n)
	}
}

func TestDrain_WhatOutlastsTheGraceIsCut(t *testing.T) {
	t.Parallel() // it is over after three seconds
	const n = 200
	r := run(t, setup{decodes: 1, cfg: func(c *server.Config) { c.ShutdownGrace = 600 * time.Millisecond }})
	gate, started := make(chan struct{}), atomic.Int64{}
	r.decode[0].always(half(gate, &started))
	streams := r.openStreams(n)
	// Two turns that have nothing yet: one waits for prefill, one for decode's first byte.
	waiting := make(chan reply, 2)
	r.decode[0].next(silent)
	go func() { waiting <- r.turn("decode", 1, true) }()
	r.decode[0].await(n + 1)
	r.prefill[0].next(silent)
	go func() { waiting <- r.turn("prefill", 1, true) }()
	r.prefill[0].await(n + 2)
	began := time.Now()
	r.stop()
	for _, resp := range streams {
		p := r.rest(resp)
		cutOff(t, p)
		if got := strings.Count(lastError(t, p.body, "server_shutting_down"), "data: "); got != 2 {
			t.Errorf("got %d events, want the 2 that were sent", got)
		}
	}
	for range 2 {
		p := <-waiting
		r.wantError(p, 503, "server_shutting_down")
		wantRetryAfter(t, p, "1")
	}
	r.end()
	if took := time.Since(began); took > 600*time.Millisecond+5*time.Second+patience {
		t.Errorf("Run returned after %s, want grace and 5s at most", took)
	}
	if n := r.log.count("grace period over", `"level":"WARN"`); n != 1 {
		t.Errorf("got %d warnings, want 1", n)
	}
}

func TestDrain_DetachedWorkIsAwaited(t *testing.T) {
	l, gate := newLeaver(t), make(chan struct{})
	seam := &legsSeam{afterPrefill: func(ctx context.Context) {
		l.leave()
		<-ctx.Done()
	}}
	r := run(t, setup{deps: func(d *server.Deps) { seam.Legs, d.Legs = d.Legs, seam }})
	r.decode[0].always(waits(gate, decodes))
	_ = r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
	r.decode[0].await(1)
	r.until(func() bool { return r.lines() == 1 })
	r.stop()
	select {
	case err := <-r.result:
		t.Fatalf("Run returned %v while decode still reads prefill's blocks", err)
	case <-time.After(100 * time.Millisecond): // an idle server returns in less than one
	}
	close(gate)
	r.end()
}

func TestRun_EndsWithItsListener(t *testing.T) {
	r := newRig(t, setup{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := r.server.Run(context.Background(), listener); err == nil || !strings.HasPrefix(err.Error(), "serve: ") {
		t.Errorf("got %v, want what made serving end", err)
	}
}

func TestClientLimits_SlowHeadersEndTheConnection(t *testing.T) {
	r := run(t, setup{cfg: func(c *server.Config) { c.ClientHeaderTimeout = 100 * time.Millisecond }})
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write([]byte("POST / HTTP/1.1\r\nHost:"))
	if n, err := conn.Read(make([]byte, 100)); err == nil && n > 0 || isTimeout(err) {
		t.Errorf("got %d bytes, %v; want the connection closed", n, err)
	}
}

func TestClientLimits_HugeHeaderIsRefused(t *testing.T) {
	t.Parallel()
	r := run(t, setup{})
	p := r.send(ask("", true, "q"), "X-Big", strings.Repeat("x", 64<<10))
	if p.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d, %v", p.status, p.err)
	}
	if n := len(r.prefill[0].seen()); n != 0 {
		t.Errorf("got %d legs", n)
	}
}
