package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
	"carryover/server"
)

// oneConn is a listener with one connection, in memory, so that time can be synthetic.
type oneConn chan net.Conn

// Accept implements net.Listener.
func (l oneConn) Accept() (net.Conn, error) {
	conn, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// Close implements net.Listener. net/http calls it once.
func (l oneConn) Close() error {
	close(l)
	return nil
}

// Addr implements net.Listener.
func (oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// unreached is a server without engines, which in-memory connections reach.
func unreached(t *testing.T) (*server.Server, oneConn) {
	t.Helper()
	cfg := defaults(&logBook{})
	cfg.ClientBodyTimeout, cfg.ClientHeaderTimeout = time.Minute, 10*time.Second
	secret, err := convcache.NewSecret([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	return server.New(cfg, newDeps(nil, newFleet(nil, nil), secret)), make(oneConn, 1)
}

// A request that comes within the announced time is answered.
func TestClientLimits_IdleConnectionIsKeptAsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, listener := unreached(t)
		near, far := net.Pipe()
		listener <- far
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = s.Run(ctx, listener) })
		answers := bufio.NewReader(near)
		for _, row := range []struct{ line, header, want string }{
			{"GET /healthz", "X: first", "timeout=650"}, {"GET /nope", "X: unknown", "timeout=650"}, {"POST " + chatPath, "Content-Encoding: br", "timeout=650"},
			{"GET /healthz", "X: idle", "timeout=650"}, {"GET /healthz", "Connection: close", ""},
		} {
			if _, err := io.WriteString(near, wire(row.line, "", row.header)); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			if got := answer.Header.Get("Keep-Alive"); got != row.want || answer.Close != (row.want == "") {
				t.Errorf("%v: got Keep-Alive %q, closes %v", row, got, answer.Close)
			}
			<-time.After(650 * time.Second)
		}
		stop()
		run.Wait()
	})
}

// trickle sends the given number of bytes of a body per second, and returns the status of the answer and after how long it came.
func trickle(t *testing.T, perSecond int) (status int, took time.Duration) {
	t.Helper()
	s, listener := unreached(t)
	near, far := net.Pipe()
	listener <- far
	ended := make(chan struct{})
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(ended)
		}
	}}
	go func() { _ = srv.Serve(listener) }() // until srv.Close
	defer func() { _ = srv.Close() }()

	began, done := time.Now(), make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		_, _ = io.WriteString(near, wire("POST "+chatPath, "", fmt.Sprintf("Content-Length: %d", 1<<20)))
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if _, err := near.Write(make([]byte, perSecond)); err != nil {
					return
				}
			case <-done:
				return
			}
		}
	})
	answer, err := http.ReadResponse(bufio.NewReader(near), nil)
	took = time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	close(done)
	_ = near.Close()
	sender.Wait()
	<-ended
	if n, clients := s.Inflight(); n != 0 || clients != 0 {
		t.Errorf("%d bytes of %d clients are still reserved", n, clients)
	}
	return answer.StatusCode, took
}

func TestClientLimits_TricklingBodyIsCut(t *testing.T) {
	for perSecond, want := range map[int]time.Duration{
		1:    10 * time.Second,
		1000: 10 * time.Second,
		2000: time.Minute, // fast enough, until all must be there
	} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if status, took := trickle(t, perSecond); status != http.StatusRequestTimeout || took != want {
					t.Errorf("got %d after %s, want 408 after %s", status, took, want)
				}
			})
		})
	}
}
