package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

const okHead = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"

var errLeft = errors.New("left")

// Connected comes before anything is written, and the connection serves the next request when the answer has ended.
func TestDo_TellsWhenAConnectionIsItsOwn(t *testing.T) {
	s := newRaw(t, func(p *player, _ int) {
		for p.request() {
			p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
		}
	})
	c := newClient(t)
	var conns []net.Conn
	for n := range 3 {
		q := s.get()
		q.Connected = func(conn net.Conn) { conns = append(conns, conn) }
		r, err := c.Do(t.Context(), q)
		must(t, err)
		if len(conns) != n+1 || len(c.pool.idle[q.peer()]) > 0 {
			t.Error("given back before the end")
		}
		if _, err := io.ReadAll(r); err != nil || len(c.pool.idle[q.peer()]) != 1 {
			t.Errorf("at the end: %v, %d idle", err, len(c.pool.idle[q.peer()]))
		}
		if err := r.Close(); err != nil || len(c.pool.idle[q.peer()]) != 1 {
			t.Errorf("closed: %v, %d idle", err, len(c.pool.idle[q.peer()]))
		}
		if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind the end: %d, %v", n, err)
		}
	}
	if conns[0] != conns[1] || conns[1] != conns[2] || s.conns.Load() != 1 {
		t.Errorf("got %d connections, want one", s.conns.Load())
	}
}

// large is more than two sockets hold.
func large() []byte { return make([]byte, 32<<20) }

// A peer may answer before it has read the request, and then read nothing more, or break the connection.
func TestDo_ReadsAnAnswerThatComesEarly(t *testing.T) {
	const refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
	for name, tc := range map[string]struct {
		play peerPlay
		body string
	}{
		"and nothing is read": {func(p *player, _ int) { p.say(refusal); <-p.t.Context().Done() }, "no"},
		"and it is empty":     {func(p *player, _ int) { p.say("HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n"); <-p.t.Context().Done() }, ""},
		"and some is read": {func(p *player, _ int) {
			_, _ = io.ReadFull(p.Conn, make([]byte, 1<<20))
			p.say(refusal)
			<-p.t.Context().Done()
		}, "no"},
		"and the connection is closed": {func(p *player, _ int) {
			_, _ = io.ReadFull(p.Conn, make([]byte, 100))
			p.say(refusal)
		}, "no"},
		"and the connection is reset": {func(p *player, _ int) {
			_, _ = io.ReadFull(p.Conn, make([]byte, 100))
			p.say(refusal)
			_ = p.Conn.(*net.TCPConn).SetLinger(0)
		}, "no"},
	} {
		for kind, dial := range dials() {
			t.Run(name+", "+kind, func(t *testing.T) {
				s := newRaw(t, tc.play)
				c := clientOf(t, dial)
				r, body, err := fetch(t, c, s.post(large()))
				if err != nil || r.Status != 413 || body != tc.body {
					t.Errorf("got %q, %v, want the refusal", body, err)
				}
				if got := c.pool.take(peer{"http", s.authority}); got != nil {
					t.Error("the connection is kept")
				}
			})
		}
	}
}

// A request that could not be written is answered too, if there is an answer, and its connection is not used again.
func TestDo_ReadsAnAnswerBehindABrokenWrite(t *testing.T) {
	const no = "HTTP/1.1 400 X\r\nContent-Length: 2\r\n\r\nno"
	for _, tc := range []struct {
		size   int
		answer string
		want   error
	}{{0, no, nil}, {0, "", syscall.EPIPE}, {inline, no, nil}, {inline, "", io.ErrUnexpectedEOF}} {
		conn := &brokenWrite{script: script{pieces: split(tc.answer, 4096)}}
		c := New(Config{Dial: func(context.Context, string, string) (Conn, error) { return conn, nil }, IdlePerHost: 1, IdleFor: time.Hour})
		q := &Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/", Body: [][]byte{make([]byte, tc.size)}}
		if _, _, err := fetch(t, c, q); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || !conn.closed.Load() {
			t.Errorf("%d bytes, %q: got %v, closed %v, want %v", tc.size, tc.answer, err, conn.closed.Load(), tc.want)
		}
	}
}

type brokenWrite struct{ script }

func (b *brokenWrite) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
}

// An answer that is no refusal means that the rest is still wanted.
func TestDo_WritesOnBehindAnAnswerThatIsNoRefusal(t *testing.T) {
	s := newRaw(t, func(p *player, _ int) {
		r, err := http.ReadRequest(p.from)
		if err != nil {
			return
		}
		p.say(okHead)
		if n, err := io.Copy(io.Discard, r.Body); err == nil && n == 32<<20 {
			p.say("{}")
		}
		p.gone()
	})
	for kind, dial := range dials() {
		if _, body, err := fetch(t, clientOf(t, dial), s.post(large())); err != nil || body != "{}" {
			t.Errorf("%s: got %q, %v", kind, body, err)
		}
	}
}

func TestDo_EndsWithItsContext(t *testing.T) {
	arrived := make(chan struct{}, 1)
	wait := func(p *player) { arrived <- struct{}{}; p.gone() }
	for name, tc := range map[string]struct {
		play      peerPlay
		body      []byte
		connected bool
		headers   bool // the header comes
	}{
		"while it writes": {play: func(p *player, _ int) {
			_, _ = io.ReadFull(p.Conn, make([]byte, 1<<20))
			arrived <- struct{}{}
			<-p.t.Context().Done()
		}, body: large(), connected: true},
		"while it waits for the header": {play: func(p *player, _ int) { p.request(); wait(p) }, connected: true},
		"in a header":                   {play: func(p *player, _ int) { p.request(); p.say(okHead[:20]); wait(p) }, connected: true},
		"while it reads":                {play: func(p *player, _ int) { p.request(); p.say(okHead + "{"); wait(p) }, connected: true, headers: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRaw(t, tc.play)
			c := newClient(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-arrived
				cancel(errLeft)
			}()
			q, connected := s.post(tc.body), false
			q.Connected = func(net.Conn) { connected = true }
			r, err := c.Do(ctx, q)
			if tc.headers && err == nil {
				_, err = io.ReadAll(r)
				_ = r.Close()
			}
			if !errors.Is(err, errLeft) || connected != tc.connected {
				t.Errorf("got %v, connected %v", err, connected)
			}
			if len(c.pool.idle) != 0 {
				t.Error("the connection is kept")
			}
		})
	}
}

func TestDo_OfAContextThatHasEndedSendsNothing(t *testing.T) {
	s := newRaw(t, func(p *player, _ int) {
		for p.request() {
			p.say(okHead + "{}")
		}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	dial := func(end bool) func(ctx context.Context, scheme, address string) (Conn, error) {
		return func(inner context.Context, scheme, address string) (Conn, error) {
			conn, err := dialTCP(context.WithoutCancel(inner), scheme, address)
			if end {
				cancel(errLeft) // it ends just when there is a connection
			}
			return conn, err
		}
	}
	c := New(Config{Dial: dial(true), IdlePerHost: 1, IdleFor: time.Minute})
	defer c.Close()
	for range 2 {
		q := s.get()
		q.Connected = func(net.Conn) { t.Error("connected") }
		if _, err := c.Do(ctx, q); !errors.Is(err, errLeft) {
			t.Errorf("got %v, want %v", err, errLeft)
		}
	}
	if _, body, err := fetch(t, c, s.get()); err != nil || body != "{}" || s.conns.Load() != 1 {
		t.Errorf("the connection was not kept: %q, %v", body, err)
	}
	waits := New(Config{Dial: func(ctx context.Context, _, _ string) (Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	ended, end := context.WithCancelCause(t.Context())
	time.AfterFunc(time.Millisecond, func() { end(errLeft) })
	if _, err := waits.Do(ended, s.get()); !errors.Is(err, errLeft) {
		t.Errorf("while it dials: got %v, want %v", err, errLeft)
	}
}

// A peer may answer before it has read the request. What it reads afterwards is what was sent, whatever has become of that memory.
func TestDo_ABodyMayChangeOnceItsAnswerIsThere(t *testing.T) {
	received := make(chan []byte, 1)
	s := newRaw(t, func(p *player, _ int) {
		r, err := http.ReadRequest(p.from)
		if err != nil {
			return
		}
		p.say(okHead + "{}")
		got, _ := io.ReadAll(r.Body)
		received <- got
	})
	for kind, dial := range dials() {
		body := large()
		r, err := clientOf(t, dial).Do(t.Context(), s.post(body))
		must(t, err)
		for i := range body {
			body[i] = 'x'
		}
		if got := <-received; len(got) < len(body) || bytes.IndexByte(got, 'x') >= 0 {
			t.Errorf("%s: of %d bytes those from %d on have changed on the way", kind, len(got), bytes.IndexByte(got, 'x'))
		}
		_ = r.Close()
	}
}
