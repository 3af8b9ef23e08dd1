package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
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
	return r.dialFrom("127.0.0.1")
}

// dialFrom connects from an address of this machine.
func (r *rig) dialFrom(address string) net.Conn {
	r.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(r.t.Context(), "tcp", strings.TrimPrefix(r.front.URL, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// A client that closes its sending side counts as gone, as everywhere in net/http; it must not take the end of its
// connection for an answer.
func TestGone_HalfClosedClientGetsNoEmptyAnswer(t *testing.T) {
	r := newRig(t, setup{})
	r.prefill[0].always(silent)
	conn := r.dial()
	body := ask("c", true, "q")
	_, _ = io.WriteString(conn, wire("POST "+chatPath, body, fmt.Sprint("Content-Length: ", len(body))))
	r.prefill[0].await(1)
	_ = conn.(*net.TCPConn).CloseWrite()
	if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), "200 OK") {
		t.Errorf("got %q", answer)
	}
	r.prefill[0].awaitEnd(1)
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
