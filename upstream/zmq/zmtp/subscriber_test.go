package zmtp

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn is a listener with one connection.
type oneConn struct {
	conns chan net.Conn
	ended <-chan struct{}
}

func (l oneConn) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (oneConn) Close() error { return nil }

func (oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// libzmq sends its messages as soon as it has our introduction. A machine that stands still for seconds between that and our
// reading of the peer's introduction must not cost them.
func TestServer_BearsAMachineThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ours, peer := net.Pipe()
		l := oneConn{make(chan net.Conn, 1), ctx.Done()}
		l.conns <- ours
		got := make(chan string, 1)
		served := make(chan error, 1)
		go func() {
			served <- (&Server{Handle: func(frames [][]byte) { got <- string(frames[0]) }}).Serve(ctx, l)
		}()
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		go func() {
			<-time.After(5 * time.Second)
			_, _ = peer.Write(slices.Concat(greeting(), ready("PUSH"), frame("kept")))
		}()
		select {
		case message := <-got:
			if message != "kept" {
				t.Errorf("got %q", message)
			}
		case <-time.After(time.Minute):
			t.Error("the message is lost")
		}
		cancel()
		if err := <-served; err == nil {
			t.Error("Serve returns nil")
		}
		peer.Close()
	})
}
