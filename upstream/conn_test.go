package upstream

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// connect returns both ends of a connection on loopback, the first as it is dialled.
func connect(tb testing.TB) (dialled, far *net.TCPConn) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	defer func() { _ = listener.Close() }()
	near, err := net.Dial("tcp", listener.Addr().String())
	must(tb, err)
	other, err := listener.Accept()
	must(tb, err)
	tb.Cleanup(func() { _ = near.Close(); _ = other.Close() })
	return near.(*net.TCPConn), other.(*net.TCPConn)
}

// opened returns a connection that was dialled.
func opened(tb testing.TB, dialled *net.TCPConn) *conn {
	tb.Helper()
	raw, err := dialled.SyscallConn()
	must(tb, err)
	return &conn{TCPConn: dialled, raw: raw, all: newConnections()}
}

// Every read has to wait: a chunk goes to the far end and another comes back.
func TestConn_AReadCostsNoAllocation(t *testing.T) {
	dialled, far := connect(t)
	near := opened(t, dialled)
	p, q := make([]byte, 4<<10), make([]byte, 4<<10)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for err := error(nil); err == nil; {
			if _, err = far.Read(q); err == nil {
				_, err = far.Write(q[:300])
			}
		}
	}()
	t.Cleanup(func() { _ = near.Close(); <-over })
	if allocs := testing.AllocsPerRun(500, func() {
		_, err := near.Write(p[:1])
		must(t, err)
		_, err = near.Read(p)
		must(t, err)
	}); allocs > 0 {
		t.Errorf("got %.2f allocations per read, want none", allocs)
	}
}

func TestConn_IsQuietUntilItsPeerSpeaksOrGoes(t *testing.T) {
	for name, tc := range map[string]struct {
		act  func(near net.Conn, far *net.TCPConn) error
		want bool
	}{
		"nothing":            {func(net.Conn, *net.TCPConn) error { return nil }, true},
		"a deadline is over": {func(near net.Conn, _ *net.TCPConn) error { return near.SetReadDeadline(time.Now()) }, true},
		"a byte":             {func(_ net.Conn, far *net.TCPConn) error { _, err := far.Write([]byte{0}); return err }, false},
		"an end":             {func(_ net.Conn, far *net.TCPConn) error { return far.CloseWrite() }, false},
		"a reset":            {func(_ net.Conn, far *net.TCPConn) error { _ = far.SetLinger(0); return far.Close() }, false},
		"closed by us":       {func(near net.Conn, _ *net.TCPConn) error { return near.Close() }, false},
	} {
		near, far := connect(t)
		c := opened(t, near)
		must(t, tc.act(c, far))
		if got := c.Quiet(); got != tc.want {
			t.Errorf("%s: quiet %v, want %v", name, got, tc.want)
		}
	}
}

// Of what a peer has sent, crypto/tls may hold some; the connection below is empty then.
func TestSecured_IsQuietOnlyWhenTLSHoldsNothing(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certified.Close)
	trusted := certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusted.ServerName = "example.com"
	for name, tc := range map[string]struct {
		say  func(wire *stalling, far *tls.Conn)
		want bool
	}{
		"what was read":           {func(_ *stalling, far *tls.Conn) { _, _ = io.WriteString(far, "x") }, true},
		"a record of which half":  {func(_ *stalling, far *tls.Conn) { _, _ = io.WriteString(far, "xy") }, false},
		"a record that is unread": {func(_ *stalling, far *tls.Conn) { _, _ = io.WriteString(far, "x"); _, _ = io.WriteString(far, "y") }, false},
		"half a record": {func(wire *stalling, far *tls.Conn) {
			wire.stall, wire.first = func() { wire.stall = nil; wire.Conn = nowhere{wire.Conn} }, nil
			_, _ = io.WriteString(far, "x")
			_, _ = io.WriteString(far, "y")
		}, false},
		"a farewell": {func(_ *stalling, far *tls.Conn) { _, _ = io.WriteString(far, "x"); _ = far.CloseWrite() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := connect(t)
			wire := &stalling{Conn: far}
			said := make(chan struct{})
			go func() {
				defer close(said)
				server := tls.Server(wire, certified.TLS.Clone())
				if server.Handshake() == nil {
					tc.say(wire, server)
				}
			}()
			c, err := secure(t.Context(), opened(t, near), "example.com:443", trusted, time.Minute)
			must(t, err)
			<-said
			var b [1]byte
			if _, err := io.ReadFull(c, b[:]); err != nil || b[0] != 'x' {
				t.Fatalf("read %q, %v", b, err)
			}
			for looks := 0; looks < 2 && (tc.want || looks == 0); looks++ { // one that is not quiet is not looked at again
				if got := c.Quiet(); got != tc.want {
					t.Errorf("quiet %v, want %v", got, tc.want)
				}
			}
		})
	}
}

// nowhere is a connection on which nothing more arrives.
type nowhere struct{ net.Conn }

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// A leg that breaks drops the idle connections of its engine, and of no other.
func TestClient_ABrokenLegDropsTheConnectionsOfItsEngine(t *testing.T) {
	var breaks atomic.Bool
	from := [2]map[string]bool{{}, {}} // connections to each engine
	var instances [2]*Instance
	for i := range instances {
		instances[i] = engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
			if breaks.Load() {
				panic(http.ErrAbortHandler)
			}
			from[i][r.RemoteAddr] = true
			answerJSON(`{}`)(w, r)
		})
	}
	client := newTestClient(t, "")
	want := func(first, second int) {
		t.Helper()
		for _, i := range instances {
			_, err := client.Prefill(t.Context(), legTo(i))
			must(t, err)
		}
		if len(from[0]) != first || len(from[1]) != second {
			t.Errorf("%d connections to the engine that broke a leg, and %d to the other, want %d and %d", len(from[0]), len(from[1]), first, second)
		}
	}
	want(1, 1)
	breaks.Store(true)
	_, err := client.Prefill(t.Context(), legTo(instances[0]))
	if e := legError(t, err); e.Kind != Broken || !e.Sent {
		t.Errorf("got %v, want a broken leg", e)
	}
	breaks.Store(false)
	want(2, 1)
	client.http.CloseIdle("http", instances[1].Authority())
	want(2, 2)
}

// stalling is a connection that sends one record and half of the next at once, and
// then stalls.
type stalling struct {
	net.Conn
	stall func() // nil writes at once
	first []byte
}

func (c *stalling) Write(p []byte) (int, error) {
	switch {
	case c.stall == nil:
		return c.Conn.Write(p)
	case c.first == nil:
		c.first = bytes.Clone(p)
		return len(p), nil
	}
	if _, err := c.Conn.Write(append(c.first, p[:len(p)/2]...)); err != nil {
		return 0, err
	}
	c.stall()
	c.stall = nil
	n, err := c.Conn.Write(p[len(p)/2:])
	return len(p)/2 + n, err
}

// secureLeg is a decode leg over TLS. Once its first event is there, answer plays the
// rest of the engine, in records as large as TLS allows.
func secureLeg(t *testing.T, answer func(wire *stalling, w io.Writer)) *leg {
	t.Helper()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certified.Close)
	config := certified.TLS.Clone()
	config.DynamicRecordSizingDisabled = true
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	begun, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		raw, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = raw.Close() }()
		wire := &stalling{Conn: raw}
		w := tls.Server(wire, config)
		if r, err := http.ReadRequest(bufio.NewReader(w)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		_, _ = io.WriteString(w, streamHead+event("one"))
		<-begun
		answer(wire, w)
	}()
	t.Cleanup(func() { _ = listener.Close(); <-over })
	client := newTestClient(t, "")
	client.trust(certified)
	instance, err := NewInstance(RoleDecode, "wire", "https://"+listener.Addr().String())
	must(t, err)
	l := &leg{t: t, stream: decodeFrom(t, client, &instance)}
	l.read("one")
	close(begun)
	return l
}

// What crypto/tls holds came before a connection that is empty afterwards: bytes of a
// record that are not handed over yet, and part of a record.
func TestStream_WhatTLSHoldsBackIsAsOldAsItIs(t *testing.T) {
	const full = 4096 - len("ff9\r\n\r\n") // with its framing it fills net/http's buffer
	first := event(strings.Repeat("x", full))
	for name, answer := range map[string]func(arrived chan<- time.Time, wire *stalling, w io.Writer){
		"an event of two records": func(arrived chan<- time.Time, _ *stalling, w io.Writer) {
			_, _ = io.WriteString(w, first+"c\r\nfinish")
			arrived <- time.Now()
			pass(2 * moment)
			_, _ = io.WriteString(w, " later\r\n0\r\n\r\n")
		},
		"a record in pieces": func(arrived chan<- time.Time, wire *stalling, w io.Writer) {
			wire.stall = func() {
				arrived <- time.Now()
				pass(2 * moment)
			}
			_, _ = io.WriteString(w, first)
			_, _ = io.WriteString(w, event("finish later")+"0\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan time.Time, 1)
			l := secureLeg(t, func(wire *stalling, w io.Writer) { answer(arrived, wire, w) })
			p := make([]byte, 4096)
			if n, err := l.stream.Read(p); n != full || err != nil {
				t.Fatalf("read %d bytes (%v), want %d", n, err, full)
			}
			l.read("finish later")
			l.wantBefore(<-arrived)
		})
	}
}

func TestRecords_AreFollowedHoweverTheyAreRead(t *testing.T) {
	wire := "\x16\x03\x03\x00\x02ab" + "\x17\x03\x03\x00\x00" + "\x17\x03\x03\x01\x04" + strings.Repeat("c", 260)
	ends := map[int]bool{0: true, 7: true, 12: true, len(wire): true}
	for size := 1; size <= len(wire); size++ {
		r := &records{}
		for at := 0; at < len(wire); {
			n := min(size, len(wire)-at)
			r.follow([]byte(wire[at : at+n]))
			if at += n; r.inside() == ends[at] {
				t.Fatalf("in reads of %d, after %d bytes: inside %v", size, at, r.inside())
			}
		}
	}
}
