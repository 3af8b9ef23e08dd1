package upstream

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"carryover/sse/rawjson"
)

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
		if err := tc.act(c, far); err != nil {
			t.Fatal(err)
		}
		if got := c.Quiet(); got != tc.want {
			t.Errorf("%s: quiet %v, want %v", name, got, tc.want)
		}
	}
}

// Of what a peer has sent, crypto/tls may hold some; the connection below is empty then.
func TestSecured_IsQuietOnlyWhenTLSHoldsNothing(t *testing.T) {
	certified := httptest.NewUnstartedServer(http.NotFoundHandler())
	certified.StartTLS()
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
			if err != nil {
				t.Fatal(err)
			}
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
	conns := map[string]*atomic.Int32{}
	start := func(name string) *Instance {
		count := &atomic.Int32{}
		conns[name] = count
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if breaks.Load() {
				panic(http.ErrAbortHandler)
			}
			answerJSON(`{}`)(w, &http.Request{Body: http.NoBody})
		}))
		srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				count.Add(1)
			}
		}
		srv.Start()
		t.Cleanup(srv.Close)
		instance, err := NewInstance(RolePrefill, name, srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		return &instance
	}
	first, second := start("first"), start("second")
	client := newTestClient(t, "")
	leg := func(i *Instance) error {
		_, err := client.Prefill(t.Context(), Leg{Instance: i, Body: rawjson.Pieces{[]byte(`{}`)}})
		return err
	}
	both := func() {
		for _, i := range []*Instance{first, second} {
			if err := leg(i); err != nil {
				t.Fatal(err)
			}
		}
	}
	both()
	breaks.Store(true)
	if e := legError(t, leg(first)); e.Kind != Broken || !e.Sent {
		t.Errorf("got %v, want a broken leg", e)
	}
	breaks.Store(false)
	both()
	if a, b := conns["first"].Load(), conns["second"].Load(); a != 2 || b != 1 {
		t.Errorf("%d connections to the engine that broke a leg, and %d to the other, want 2 and 1", a, b)
	}
	client.http.CloseIdle("http", second.Authority())
	both()
	if a, b := conns["first"].Load(), conns["second"].Load(); a != 2 || b != 2 {
		t.Errorf("%d and %d connections, want 2 and 2", a, b)
	}
}
