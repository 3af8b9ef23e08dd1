package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = zmqtest.Limit

// serve runs a server on l. Peers have as long for their introduction as a test waits for anything, unless it says otherwise.
func serve(tb testing.TB, s *Server, l net.Listener) (stop func()) {
	tb.Helper()
	if s.Limits.Handshake == 0 {
		s.Limits.Handshake = limit
	}
	return zmqtest.Run(tb, func(ctx context.Context) error { return s.Serve(ctx, l) })
}

// served runs a server on a free port, whose messages an inbox keeps.
func served(tb testing.TB, limits Limits) (net.Listener, string, *inbox) {
	tb.Helper()
	l, endpoint := zmqtest.Listen(tb)
	got := newInbox()
	serve(tb, &Server{Handle: got.handle, Limits: limits}, l)
	return l, endpoint, got
}

// inbox keeps the messages that it is handed, each as its frames.
type inbox struct {
	mu   sync.Mutex // guards all
	all  []string
	more chan struct{} // closed and replaced with each message
}

func newInbox() *inbox { return &inbox{more: make(chan struct{})} }

func (i *inbox) handle(frames [][]byte) {
	text := string(bytes.Join(frames, []byte("|")))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, text)
	close(i.more)
	i.more = make(chan struct{})
}

// await waits until what has come holds.
func (i *inbox) await(tb testing.TB, what string, holds func(all []string) bool) []string {
	tb.Helper()
	timeout := time.After(limit)
	for {
		i.mu.Lock()
		all, more := i.all, i.more
		i.mu.Unlock()
		if holds(all) {
			return all
		}
		select {
		case <-more:
		case <-timeout:
			tb.Fatalf("%s: not within %v, but %d messages, the last %q", what, limit, len(all), all[max(0, len(all)-3):])
		}
	}
}

// atLeast waits for a number of messages.
func (i *inbox) atLeast(tb testing.TB, n int) []string {
	tb.Helper()
	return i.await(tb, fmt.Sprintf("%d messages", n), func(all []string) bool { return len(all) >= n })
}

// greeting is that of a ZMTP 3.0 peer with the NULL mechanism.
func greeting() []byte {
	b := make([]byte, 64)
	b[0], b[9], b[10] = 0xff, 0x7f, 3
	copy(b[12:], "NULL")
	return b
}

// property is one of the metadata of READY.
func property(name, value string) []byte {
	b := append([]byte{byte(len(name))}, name...)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}

// command is a frame with a command, of less than 256 bytes.
func command(name string, body []byte) []byte {
	content := append(append([]byte{byte(len(name))}, name...), body...)
	return append([]byte{4, byte(len(content))}, content...)
}

// frame is a short frame of a message.
func frame(content string) []byte { return append([]byte{0, byte(len(content))}, content...) }

// long is a long header.
func long(flags byte, size uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags | 2}, size)
}

// ready is the introduction of a peer.
func ready(socket string) []byte { return command("READY", property("Socket-Type", socket)) }

// rawPeer is a connection on which a test writes what it likes.
type rawPeer struct {
	net.Conn
	tb testing.TB
}

// connect connects to a server, and says all of the parts.
func connect(tb testing.TB, l net.Listener, parts ...[]byte) *rawPeer {
	tb.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	tb.Cleanup(func() { conn.Close() })
	p := &rawPeer{conn, tb}
	p.say(parts...)
	return p
}

// connectPush is connect with an introduction as PUSH.
func connectPush(tb testing.TB, l net.Listener, parts ...[]byte) *rawPeer {
	tb.Helper()
	return connect(tb, l, append([][]byte{greeting(), ready("PUSH")}, parts...)...)
}

// say writes the parts. An error says that the server has hung up, which tests see by wantClosed.
func (p *rawPeer) say(parts ...[]byte) {
	for _, part := range parts {
		if _, err := p.Write(part); err != nil {
			return
		}
	}
}

// wantClosed waits until the server has closed the connection.
func (p *rawPeer) wantClosed(why string) {
	p.tb.Helper()
	_ = p.SetReadDeadline(time.Now().Add(limit))
	buffer := make([]byte, 4096)
	for {
		_, err := p.Read(buffer)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			p.tb.Fatalf("%s: the connection is not closed within %v", why, limit)
		}
		if err != nil {
			return
		}
	}
}
