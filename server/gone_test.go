package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
)

// leaver is a client that can leave; the server notices at noticed.
type leaver struct {
	ctx     context.Context
	leave   context.CancelFunc
	arrived chan context.Context
}

func newLeaver(t *testing.T) *leaver {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return &leaver{ctx, cancel, make(chan context.Context, 10)}
}

// noticed waits until the server knows that the client of the next request has left.
func (l *leaver) noticed(t *testing.T) {
	t.Helper()
	select {
	case <-(<-l.arrived).Done():
	case <-time.After(patience):
		t.Fatal("the server did not notice that its client left")
	}
}

// dial connects to the front as a client of raw bytes.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.front.URL, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func TestGone_WhileSendingItsRequest_NothingIsSent(t *testing.T) {
	for name, request := range map[string]string{
		"headers": "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nContent-Ty",
		"body":    "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"model\":",
		"chunk":   "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{\"model",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			conn := r.dial()
			_, _ = io.WriteString(conn, request)
			_ = conn.(*net.TCPConn).CloseWrite()
			answer, _ := io.ReadAll(conn)
			if strings.Contains(string(answer), " 200 ") {
				t.Errorf("half a request was answered %q", answer)
			}
			r.front.Close()
			if n := len(r.prefill[0].seen()) + len(r.decode[0].seen()); n != 0 {
				t.Errorf("half a request reached engines %d times", n)
			}
		})
	}
}

// A client that closes its sending side counts as gone, as everywhere in net/http; it must not take the end of its
// connection for an answer.
func TestGone_HalfClosedClientGetsNoEmptyAnswer(t *testing.T) {
	r := newRig(t, setup{})
	r.prefill[0].always(silent)
	conn := r.dial()
	body := ask("c", true, "q")
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	r.prefill[0].await(1)
	_ = conn.(*net.TCPConn).CloseWrite()
	if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), "200 OK") {
		t.Errorf("got %q", answer)
	}
	r.prefill[0].awaitEnd(1)
}

func TestGone_BeforePrefillWasSent_TicketIsPutBack(t *testing.T) {
	l := newLeaver(t)
	seam := &legsSeam{}
	r := newRig(t, setup{deps: func(d *server.Deps) { seam.Legs, d.Legs = d.Legs, seam }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	seam.beforePrefill = func(ctx context.Context) {
		l.leave()
		<-ctx.Done()
	}
	_ = r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(2)...)))
	r.until(func() bool { return r.lines() == 2 })
	seam.beforePrefill = nil
	if n := len(r.prefill[0].seen()); n != 1 {
		t.Fatalf("got %d prefill legs, want 1", n)
	}
	r.wantOK(r.turn("c", 2, true), "hit;")
}

// until waits for something that no engine sees.
func (r *rig) until(true func() bool) {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !true() {
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatalf("waited %s in vain; log ends with:\n%s", patience, r.log.end())
		}
	}
}

func TestGone_DuringPrefill_LegIsCancelledAndTicketGivenUp(t *testing.T) {
	l := newLeaver(t)
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.prefill[0].next(silent)
	done := make(chan reply, 1)
	go func() {
		done <- r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(2)...)))
	}()
	r.prefill[0].await(2)
	l.leave()
	r.prefill[0].awaitEnd(2) // cancelled
	<-done
	r.until(func() bool { return r.log.count(`"msg":"turn"`, `"status":499`) == 1 })
	r.wantOK(r.turn("c", 2, true), "miss;reason=nothing_stored") // it may have been read
	if n := len(r.decode[0].seen()); n != 2 {
		t.Errorf("got %d decode legs, want 2", n)
	}
}

func TestGone_BetweenTheLegs_DecodeReadsTheBlocks(t *testing.T) {
	l := newLeaver(t)
	seam := &legsSeam{afterPrefill: func(ctx context.Context) {
		l.leave()
		<-ctx.Done()
	}}
	r := newRig(t, setup{deps: func(d *server.Deps) { seam.Legs, d.Legs = d.Legs, seam }})
	_ = r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
	d := r.decode[0].await(1)[0]
	if got, want := d.params()["remote_request_id"], "chatcmpl-"+r.prefill[0].seen()[0].id(); got != want {
		t.Errorf("got hand-over %v, want %s", got, want)
	}
	if d.streams() || !strings.Contains(d.body, `"max_tokens":1`) {
		t.Errorf("got %s, want one token and no stream", d.body)
	}
	r.decode[0].awaitEnd(1)
	if r.store.Len() != 0 {
		t.Error("an answer that was not shown left a ticket")
	}
}

func TestGone_BetweenTheLegsWithoutHandOver_NoDecodeLeg(t *testing.T) {
	l := newLeaver(t)
	seam := &legsSeam{afterPrefill: func(ctx context.Context) {
		l.leave()
		<-ctx.Done()
	}}
	r := newRig(t, setup{deps: func(d *server.Deps) { seam.Legs, d.Legs = d.Legs, seam }})
	r.prefill[0].next(replyBody("application/json", `{"id":"x"}`))
	_ = r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
	r.until(func() bool { return r.lines() == 1 })
	if n := len(r.decode[0].seen()); n != 0 {
		t.Errorf("got %d decode legs, want none", n)
	}
}

func TestGone_BetweenTheLegsAndDecodeRefuses_LogSaysSo(t *testing.T) {
	l := newLeaver(t)
	seam := &legsSeam{afterPrefill: func(ctx context.Context) {
		l.leave()
		<-ctx.Done()
	}}
	r := newRig(t, setup{deadDecodes: -1, deps: func(d *server.Deps) { seam.Legs, d.Legs = d.Legs, seam }})
	_ = r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
	r.until(func() bool { return r.log.count("wait for their lease") == 1 })
}

func TestGone_BeforeTheFirstEvent_DecodeIsNotCancelled(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		l, gate := newLeaver(t), make(chan struct{})
		legs := make(chan context.Context, 1)
		r := newRig(t, setup{front: contexts(l.arrived)})
		answer := waits(gate, func(w http.ResponseWriter, q *http.Request, l leg) {
			say(w, chatEvents(l)[0])
			silent(w, q, l) // until the leg is cancelled
		})
		r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
			legs <- q.Context() // ends when the connection of the leg is closed
			answer(w, q, l)
		})
		done := make(chan reply, 1)
		go func() { done <- r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", stream, "q"))) }()
		r.decode[0].await(1)
		l.leave()
		l.noticed(t)
		<-done
		select {
		case <-(<-legs).Done():
			t.Error("decode was cancelled before its first event")
		case <-time.After(50 * time.Millisecond): // long for a cancel, which takes microseconds
		}
		close(gate)
		r.decode[0].awaitEnd(1)
		r.until(func() bool { return r.lines() == 1 })
		if r.store.Len() != 0 {
			t.Error("an answer that was not shown left a ticket")
		}
	})
}

func TestGone_DuringTheStream_DecodeIsCancelled(t *testing.T) {
	l := newLeaver(t)
	r := newRig(t, setup{})
	r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
		say(w, chatEvents(l)[:3]...)
		silent(w, q, l)
	})
	resp, err := r.open(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = resp.Body.Read(make([]byte, 10))
	began := time.Now()
	l.leave()
	r.decode[0].awaitEnd(1)
	if took := time.Since(began); took > patience/2 { // without a cancel it takes as long as IdleTimeout, patience
		t.Errorf("decode was cancelled after %s", took)
	}
	_ = resp.Body.Close()
	r.until(func() bool { return r.lines() == 1 })
	if r.store.Len() != 0 {
		t.Error("a broken answer left a ticket")
	}
}

func TestGone_AfterTheParams_PutGoesOn(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		l, putting, gate := newLeaver(t), make(chan struct{}), make(chan struct{})
		seam := &storeSeam{put: func(context.Context) (convcache.Outcome, bool) {
			close(putting)
			<-gate
			return 0, false
		}}
		r := newRig(t, setup{
			front: contexts(l.arrived),
			cfg:   func(c *server.Config) { c.StoreTimeout = patience },
			deps:  func(d *server.Deps) { seam.Store, d.Store = d.Store, seam },
		})
		done := make(chan reply, 1)
		go func() {
			done <- r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", stream, "question 1")))
		}()
		<-putting
		l.leave()
		l.noticed(t)
		<-done
		close(gate)
		r.until(func() bool { return r.store.Len() == 1 })
		seam.put = nil
		r.wantOK(r.turn("c", 2, stream), "hit;")
	})
}
