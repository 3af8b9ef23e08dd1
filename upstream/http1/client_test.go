package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"weak"
)

const okHead = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"

var errLeft = errors.New("left")

func TestDo_WritesTheRequestAsItIs(t *testing.T) {
	for _, tc := range []struct {
		q    Request
		want string
	}{
		{Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/m?x=1"}, "GET /m?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{Request{Method: "POST", Scheme: "http", Authority: "[::1]:8000", Path: "/"}, "POST / HTTP/1.1\r\nHost: [::1]:8000\r\nContent-Length: 0\r\n\r\n"},
		{
			Request{Method: "POST", Scheme: "https", Authority: "a_b.c:1", Path: "/v1", Header: []Field{{"A", ""}, {"b-C", "d\te"}}, Body: []byte("{}")},
			"POST /v1 HTTP/1.1\r\nHost: a_b.c:1\r\nA: \r\nb-C: d\te\r\nContent-Length: 2\r\n\r\n{}",
		},
	} {
		conn := &script{pieces: split(okHead+"{}", 4096)}
		if _, _, err := fetch(t, scripted(conn), &tc.q); err != nil || string(conn.written) != tc.want {
			t.Errorf("got %q, %v, want %q", conn.written, err, tc.want)
		}
		if tc.q.Body != nil {
			t.Error("the body is still held")
		}
	}
}

func TestDo_RefusesRequestsThatCanBeReadInTwoWays(t *testing.T) {
	good := Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/"}
	field := func(name, value string) func(*Request) {
		return func(q *Request) { q.Header = []Field{{"A", "b"}, {name, value}} }
	}
	for name, tc := range map[string]struct {
		spoil func(*Request)
		want  RequestError
	}{
		"HEAD":               {func(q *Request) { q.Method = "HEAD" }, errMethod},
		"no method":          {func(q *Request) { q.Method = "" }, errMethod},
		"scheme":             {func(q *Request) { q.Scheme = "ftp" }, errScheme},
		"no authority":       {func(q *Request) { q.Authority = "" }, errAuthority},
		"user":               {func(q *Request) { q.Authority = "u:p@a" }, errAuthority},
		"path in authority":  {func(q *Request) { q.Authority = "a/b" }, errAuthority},
		"blank in authority": {func(q *Request) { q.Authority = "a b" }, errAuthority},
		"CRLF in authority":  {func(q *Request) { q.Authority = "a\r\nB: c" }, errAuthority},
		"no path":            {func(q *Request) { q.Path = "" }, errPath},
		"blank in a path":    {func(q *Request) { q.Path = "/ HTTP/1.1" }, errPath},
		"LF in a path":       {func(q *Request) { q.Path = "/\n" }, errPath},
		"path above ASCII":   {func(q *Request) { q.Path = "/ä" }, errPath},
		"URL as path":        {func(q *Request) { q.Path = "http://a/" }, errPath},
		"no name":            {field("", "x"), errName},
		"blank in a name":    {field("B ", "x"), errName},
		"colon in a name":    {field("B:", "x"), errName},
		"CRLF in a value":    {field("B", "x\r\nContent-Length: 3"), errValue},
		"LF in a value":      {field("B", "x\ny"), errValue},
		"NUL in a value":     {field("B", "\x00"), errValue},
		"length":             {field("content-length", "1"), errReserved},
		"coding":             {field("Transfer-Encoding", "chunked"), errReserved},
		"host":               {field("HOST", "b"), errReserved},
		"connection":         {field("Connection", "close"), errReserved},
		"expectation":        {field("Expect", "100-continue"), errReserved},
	} {
		q := good
		tc.spoil(&q)
		c := New(Config{Dial: func(context.Context, string, string) (Conn, error) { panic("dialled") }})
		if _, err := c.Do(t.Context(), &q); !errors.Is(err, tc.want) || err.Error() == "" {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestDo_DialsTheAuthority(t *testing.T) {
	refused := errors.New("refused")
	for authority, want := range map[string]string{
		"a": "a:80", "a:8000": "a:8000", "a:": "a:80", "[::1]": "[::1]:80", "[::1]:8000": "[::1]:8000", "127.0.0.1": "127.0.0.1:80",
	} {
		for scheme, port := range map[string]string{"http": ":80", "https": ":443"} {
			got := ""
			c := New(Config{Dial: func(_ context.Context, s, address string) (Conn, error) {
				got = s + " " + address
				return nil, refused
			}})
			q := &Request{Method: "GET", Scheme: scheme, Authority: authority, Path: "/", Connected: func(net.Conn) { t.Error("connected") }}
			full := scheme + " " + want
			if cut, ok := strings.CutSuffix(full, ":80"); ok {
				full = cut + port
			}
			if _, err := c.Do(t.Context(), q); !errors.Is(err, refused) || got != full {
				t.Errorf("%s: dialled %s, %v, want %s", authority, got, err, full)
			}
		}
	}
}

// Connected comes before anything is written, and Done before the connection serves anything else.
func TestDo_TellsWhenAConnectionIsItsOwn(t *testing.T) {
	s := newRaw(t, func(p *player, _ int) {
		for p.request() {
			p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
		}
	})
	c := newClient(t)
	var serving atomic.Int32
	var conns []net.Conn
	for range 3 {
		q := s.get()
		q.Connected = func(conn net.Conn) { serving.Add(1); conns = append(conns, conn) }
		q.Done = func() {
			if c.pool.idle[q.peer()] != nil && len(c.pool.idle[q.peer()]) > 0 {
				t.Error("the connection was given back before")
			}
			serving.Add(-1)
		}
		r, err := c.Do(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if serving.Load() != 1 {
			t.Error("done before the end")
		}
		if _, err := io.ReadAll(r); err != nil || serving.Load() != 0 {
			t.Errorf("at the end: %v, serving %d", err, serving.Load())
		}
		if err := r.Close(); err != nil || serving.Load() != 0 {
			t.Errorf("closed: %v, serving %d", err, serving.Load())
		}
		if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind the end: %d, %v", n, err)
		}
	}
	if conns[0] != conns[1] || conns[1] != conns[2] || s.conns.Load() != 1 {
		t.Errorf("got %d connections, want one", s.conns.Load())
	}
}

// A body is not held while the answer is waited for.
func TestDo_ForgetsTheBodyOnceItIsWritten(t *testing.T) {
	for _, size := range []int{1 << 10, 256 << 10} {
		has, may := make(chan struct{}), make(chan struct{})
		s := newRaw(t, func(p *player, _ int) {
			p.request()
			close(has)
			<-may
			p.say(okHead + "{}")
		})
		c := newClient(t)
		body := new([256 << 10]byte)
		held := weak.Make(body)
		q := s.post(body[:size])
		body = nil
		ended := make(chan error, 1)
		go func() {
			_, _, err := fetch(t, c, q)
			ended <- err
		}()
		<-has
		for limit := time.Now().Add(10 * time.Second); held.Value() != nil; runtime.GC() {
			if time.Now().After(limit) {
				t.Errorf("%d bytes: the body is held", size)
				break
			}
		}
		close(may)
		if err := <-ended; err != nil {
			t.Error(err)
		}
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
		t.Run(name, func(t *testing.T) {
			s := newRaw(t, tc.play)
			c := newClient(t)
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

// A small request that could not be written is answered too, if there is an answer.
func TestDo_ReadsAnAnswerBehindABrokenWrite(t *testing.T) {
	for answer, want := range map[string]error{"HTTP/1.1 400 X\r\nContent-Length: 2\r\n\r\nno": nil, "": syscall.EPIPE} {
		conn := &brokenWrite{script: script{pieces: split(answer, 4096)}}
		c := New(Config{Dial: func(context.Context, string, string) (Conn, error) { return conn, nil }, IdlePerHost: 1, IdleFor: time.Hour})
		q := &Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/"}
		if _, _, err := fetch(t, c, q); !errors.Is(err, want) || (err == nil) != (want == nil) || !conn.closed.Load() {
			t.Errorf("%q: got %v, closed %v, want %v", answer, err, conn.closed.Load(), want)
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
	if _, body, err := fetch(t, newClient(t), s.post(large())); err != nil || body != "{}" {
		t.Errorf("got %q, %v", body, err)
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
			q, connected, done := s.post(tc.body), false, false
			q.Connected, q.Done = func(net.Conn) { connected = true }, func() { done = true }
			r, err := c.Do(ctx, q)
			if tc.headers && err == nil {
				_, err = io.ReadAll(r)
				_ = r.Close()
			}
			if !errors.Is(err, errLeft) || connected != tc.connected || !done {
				t.Errorf("got %v, connected %v, done %v", err, connected, done)
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

// Close ends a read that waits, and an answer that has not been read to its end takes its connection with it.
func TestResponse_CloseEndsWhatIsLeft(t *testing.T) {
	closed := make(chan struct{}, 2)
	s := newRaw(t, func(p *player, _ int) {
		p.request()
		p.say(okHead + "{")
		p.gone()
		closed <- struct{}{}
	})
	c := newClient(t)
	for _, reading := range []bool{false, true} {
		r, err := c.Do(t.Context(), s.get())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		if reading {
			var b [1]byte
			if _, err := r.Read(b[:]); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := r.Read(b[:])
				ended <- err
			}()
		}
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		<-closed
		if !reading {
			_, err := r.Read(make([]byte, 1))
			ended <- err
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading %v: got %v, want %v", reading, err, net.ErrClosed)
		}
	}
	if s.conns.Load() != 2 {
		t.Errorf("got %d connections, want 2", s.conns.Load())
	}
}

// A read returns what is there. What it leaves is in the connection, or told by Ahead.
func TestResponse_ReadsWhatIsThere(t *testing.T) {
	step := make(chan string)
	s := newRaw(t, func(p *player, _ int) {
		p.request()
		for text := range step {
			p.say(text)
		}
	})
	go func() { step <- "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n" }()
	r, err := newClient(t).Do(t.Context(), s.get())
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 64)
	for _, tc := range []struct {
		say, want string
		room      int
		ahead     bool
	}{
		{"", "o", 1, true},
		{"", "ne", 64, false},
		{"3\r\ntwo\r\n", "two", 64, false},
		{"3\r\ntwo\r\n5", "two", 64, true},
		{"\r\nth", "th", 64, true},
		{"ree", "ree", 64, false},
		{"\r\n1\r\nx", "x", 64, false},
		{"\r\n0\r\nA: b\r\n\r\n", "", 64, false},
	} {
		if tc.say != "" {
			step <- tc.say
		}
		n, err := r.Read(p[:tc.room])
		if string(p[:n]) != tc.want || err != nil && (n > 0 || !errors.Is(err, io.EOF)) || r.Ahead() != tc.ahead {
			t.Fatalf("%q: read %q, %v, ahead %v, want %q, ahead %v", tc.say, p[:n], err, r.Ahead(), tc.want, tc.ahead)
		}
	}
	close(step)
	if n, err := r.Read(nil); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes into nothing, %v", n, err)
	}
}

func TestResponse_WhatCameWithTheHeaderIsAhead(t *testing.T) {
	r, err := scripted(&script{pieces: split(okHead+"{}", 4096)}).Do(t.Context(), &Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil || !r.Ahead() || r.Left() != 1 {
		t.Errorf("read %d, %v, ahead %v, left %d", n, err, r.Ahead(), r.Left())
	}
}

func TestResponse_AReadCostsNoAllocation(t *testing.T) {
	s := newRaw(t, func(p *player, _ int) {
		p.request()
		p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for chunk := []byte("3\r\none\r\n"); ; {
			if _, err := p.Write(chunk); err != nil {
				return
			}
		}
	})
	r, err := newClient(t).Do(t.Context(), s.get())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	p := make([]byte, 64)
	if allocs := testing.AllocsPerRun(1000, func() {
		if _, err := r.Read(p); err != nil {
			t.Fatal(err)
		}
	}); allocs > 0 {
		t.Errorf("got %v allocations per read, want none", allocs)
	}
}
