package server_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
)

// running is a server under Run on a listener of its own.
type running struct {
	*rig
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
	r.front.URL = "http://" + listener.Addr().String()
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

// openStreams opens 200 streams that wait at the gate behind two events.
func (r *running) openStreams(gate <-chan struct{}) (streams []*http.Response) {
	r.t.Helper()
	r.decode[0].always(where(leg.rescues, decodes, pausing(chatEvents, 2, gate))) // a rescue takes ten seconds otherwise
	for i := range 200 {
		streams = append(streams, r.opens(context.Background(), chatPath, ask(fmt.Sprint("c", i), true, "question 1")))
	}
	return streams
}

func TestDrain_StreamsFinishWithinTheGrace(t *testing.T) {
	r, gate := run(t, setup{}), make(chan struct{})
	if p := r.get("/readyz"); p.status != 200 {
		t.Errorf("got /readyz %d before the drain", p.status)
	}
	streams := r.openStreams(gate)
	r.stop()
	r.until(func() bool { return r.log.count(`"msg":"draining"`) == 1 })
	p := r.get("/readyz")
	if p.status != 503 || !strings.Contains(p.body, "draining") {
		t.Errorf("got /readyz %d %q, want 503 at once", p.status, p.body)
	}
	close(gate)
	for i, l := range r.decode[0].seen() {
		if p := r.rest(streams[i]); p.err != nil || p.body != chatBytes(l) {
			t.Errorf("got %q, %v; log ends with:\n%s", p.body, p.err, r.log.end())
		}
	}
	r.end()
	if got := r.store.Len(); got != len(streams) {
		t.Errorf("got %d tickets, want %d: puts go on while draining", got, len(streams))
	}
}

func TestDrain_WhatOutlastsTheGraceIsCut(t *testing.T) {
	t.Parallel()
	r := run(t, setup{cfg: func(c *server.Config) { c.ShutdownGrace = 600 * time.Millisecond }})
	streams := r.openStreams(nil)
	// Two turns that have nothing yet: one waits for prefill, one for decode's first byte.
	waiting := make(chan reply, 2)
	for i, e := range []*engine{r.decode[0], r.prefill[0]} {
		e.next(silent)
		go func() { waiting <- r.turn(e.name, 1, true) }()
		e.await(len(streams) + i + 1)
	}
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
	conn := r.dial()
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
