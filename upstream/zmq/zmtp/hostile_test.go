package zmtp

import (
	"carryover/logtest"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

// heapGrowth returns by how much the bytes that were ever allocated grow while f runs.
func heapGrowth(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What a peer must not send costs it its own connection, at once, and no memory.
func TestServer_ClosesConnectionsThatBreakTheProtocol(t *testing.T) {
	l, _ := zmqtest.Listen(t)
	got := newInbox()
	var log logtest.Log
	serve(t, &Server{Handle: got.handle, Logger: log.Logger(), Limits: Limits{MaxFrame: 1000, MaxParts: 3}}, l)
	bystander := connectPush(t, l)

	badGreeting := func(at int, to byte) []byte {
		b := append(greeting(), ready("PUSH")...)
		b[at] = to
		return b
	}
	for after, all := range map[string]map[string][]byte{
		string(append(greeting(), ready("PUSH")...)): {
			"a frame of 2^49 bytes":     long(0, 1<<49),
			"a frame of 2^62 bytes":     long(0, 1<<62),
			"a frame of 2^64 - 1 bytes": long(0, math.MaxUint64),
			"a frame of 8 GiB":          long(0, 8<<30),
			"a frame over the limit":    long(0, 1001),
			"a command of 2^62 bytes":   long(4, 1<<62),
			"too many frames":           []byte("\x01\x00\x01\x00\x01\x00\x01\x00"),
			"a command with more":       []byte("\x05\x05\x04PING"),
			"a command in a message":    []byte("\x01\x01x\x04\x05\x04PING"),
			"reserved flags":            []byte("\x08\x01x"),
			"an empty command":          []byte("\x04\x00"),
			"a name that ends early":    []byte("\x04\x02\xc8P"),
		},
		string(greeting()): {
			"an introduction of 8 GiB": long(4, 8<<30),
			"an introduction of 1 MiB": long(4, 1<<20),
			"another socket":           ready("SUB"),
			"a socket that is none":    ready("FOO"),
			"no socket":                command("READY", nil),
			"no READY":                 command("ERROR", []byte{0}),
			"metadata that end early":  command("READY", []byte("\x0bS")),
			"a value that ends early":  command("READY", []byte("\x01A\x7f\xff\xff\xff")),
			"a length that ends early": command("READY", []byte("\x01A\x00")),
			"a message for a READY":    frame("x"),
		},
		"": {
			"HTTP":              []byte("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 100)),
			"TLS":               append([]byte("\x16\x03\x01\x02\x00\x01"), make([]byte, 100)...),
			"another signature": badGreeting(9, 0),
			"version 2":         badGreeting(10, 2),
			"another mechanism": badGreeting(12, 'P'),
		},
	} {
		for name, said := range all {
			p := connect(t, l)
			if grown := heapGrowth(func() { p.say([]byte(after), said); p.wantClosed(name) }); grown > 4<<20 {
				t.Errorf("%s: %d bytes allocated", name, grown)
			}
		}
	}
	bystander.say(frame("still here"))
	connectPush(t, l, frame("and served"))
	got.await(t, "messages of others", func(all []string) bool { return len(all) == 2 })
	if n := log.Count("speak the protocol"); n != 1 {
		t.Errorf("got %d lines about it, want 1 a minute", n)
	}
	if n := log.Count("level=ERROR"); n != 0 {
		t.Errorf("got %d errors in the log", n)
	}
}

// Frames at the limits pass, a long header for a short frame too.
func TestServer_TakesFramesAtTheLimits(t *testing.T) {
	t.Parallel()
	l, _, got := served(t, Limits{MaxFrame: 1000, MaxParts: 3})
	connectPush(t, l, long(0, 1000), make([]byte, 1000), long(0, 3), []byte("abc"), []byte{1, 1, 'a', 1, 0, 0, 1, 'b'}, frame("end"))
	all := got.atLeast(t, 4)
	if len(all[0]) != 1000 || all[1] != "abc" || all[2] != "a||b" || all[3] != "end" {
		t.Errorf("got %.20q", all)
	}
	// A peer that sends byte by byte.
	p := connectPush(t, l)
	for _, b := range append(long(1, 2), []byte("xy\x00\x01z")...) {
		p.say([]byte{b})
	}
	got.await(t, "what came byte by byte", func(all []string) bool { return all[len(all)-1] == "xy|z" })
}

// Connections that say nothing, or a part of a greeting, keep nobody out, however many they are, and are gone in time.
func TestServer_SilentConnectionsKeepNobodyOut(t *testing.T) {
	const most = 8
	l, _, got := served(t, Limits{MaxPeers: most, Handshake: 5 * time.Second})
	var silent []*rawPeer
	for i := range 3 * most {
		silent = append(silent, connect(t, l, greeting()[:i*2]))
	}
	silent = append(silent, connect(t, l, greeting()), connect(t, l, greeting(), ready("PUSH")[:10]))
	connectPush(t, l, frame("hello"))
	got.atLeast(t, 1)
	for _, p := range silent {
		p.wantClosed("a connection that says nothing")
	}
}

// Long before their time is over: of more silent connections than there may be peers the oldest are closed.
func TestServer_BoundsSilentConnections(t *testing.T) {
	t.Parallel()
	l, _, got := served(t, Limits{MaxPeers: 2, Handshake: time.Hour})
	var silent []*rawPeer
	for range 6 {
		silent = append(silent, connect(t, l))
	}
	for _, p := range silent[:4] {
		p.wantClosed("one of the oldest")
	}
	silent[5].say(greeting(), ready("PUSH"), frame("the last"))
	silent[4].say(greeting(), ready("PUSH"), frame("the one before"))
	got.atLeast(t, 2)
}

func TestServer_RefusesPeersBeyondItsLimit(t *testing.T) {
	t.Parallel()
	l, _ := zmqtest.Listen(t)
	got := newInbox()
	var log logtest.Log
	serve(t, &Server{Handle: got.handle, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Limits: Limits{MaxPeers: 2}}, l)
	first := connectPush(t, l, frame("first"))
	got.atLeast(t, 1)
	connectPush(t, l, frame("second"))
	got.atLeast(t, 2)
	for range 3 {
		connectPush(t, l, frame("third")).wantClosed("a third peer")
	}
	if n := log.Count("too many"); n != 1 {
		t.Errorf("got %d lines, want 1 a minute", n)
	}
	first.Close()
	zmqtest.Eventually(t, "a place for another", func() bool { return log.Count("peer has left") > 0 })
	connectPush(t, l, frame("fourth"))
	if all := got.atLeast(t, 3); all[2] != "fourth" {
		t.Errorf("got %q", all)
	}
}

// failingListener fails for as long as it is told to, as a process without file descriptors does.
type failingListener struct {
	net.Listener
	fails atomic.Int64
	calls atomic.Int64
}

func (l *failingListener) Accept() (net.Conn, error) {
	l.calls.Add(1)
	if l.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestServer_PausesWhenItCannotAccept(t *testing.T) {
	t.Parallel()
	inner, _ := zmqtest.Listen(t)
	l := &failingListener{Listener: inner}
	l.fails.Store(6) // 5 + 10 + 20 + 40 + 80 + 160 ms
	got := newInbox()
	var log logtest.Log
	begin := time.Now()
	serve(t, &Server{Handle: got.handle, Logger: log.Logger()}, l)
	connectPush(t, inner, frame("hello"))
	got.atLeast(t, 1)
	if took := time.Since(begin); took < 315*time.Millisecond {
		t.Errorf("six failures took %v, want growing pauses", took)
	}
	if n := log.Count("can't accept"); n != 1 {
		t.Errorf("got %d lines, want 1 a minute", n)
	}
	// And ends within a pause.
	l.fails.Store(math.MaxInt64)
}

func TestServer_EndsWithItsListener(t *testing.T) {
	t.Parallel()
	l, _ := zmqtest.Listen(t)
	s := Server{Handle: func([][]byte) {}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), l) }()
	p := connectPush(t, l)
	l.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
	p.wantClosed("after the end")
}

func TestServer_OutlivesAPanickingHandler(t *testing.T) {
	t.Parallel()
	l, _ := zmqtest.Listen(t)
	got := newInbox()
	var log logtest.Log
	serve(t, &Server{Logger: log.Logger(), Handle: func(frames [][]byte) {
		if string(frames[0]) == "panic" {
			panic("no good")
		}
		got.handle(frames)
	}}, l)
	connectPush(t, l, frame("panic")).wantClosed("a peer whose message panics")
	connectPush(t, l, frame("hello"))
	got.atLeast(t, 1)
	if log.Count("no good") != 1 || log.Count("hostile_test.go") == 0 {
		t.Error("the log doesn't say where the handler panicked")
	}
}

// A peer that sends heartbeats and reads no answer is given up.
func TestServer_GivesUpPeersThatDoNotRead(t *testing.T) {
	t.Parallel()
	l, _, got := served(t, Limits{Handshake: 5 * time.Second})
	p := connectPush(t, l)
	ping := command("PING", make([]byte, 2))
	pings := make([]byte, 0, 1000*len(ping))
	for range 1000 {
		pings = append(pings, ping...)
	}
	_ = p.SetWriteDeadline(time.Now().Add(limit))
	for {
		if _, err := p.Write(pings); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("the peer is kept: %v", err)
			}
			break
		}
	}
	connectPush(t, l, frame("hello"))
	got.atLeast(t, 1)
}
