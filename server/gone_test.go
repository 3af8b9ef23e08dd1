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
