package upstream

import (
	"net"
	"testing"
)

// connect returns both ends of a connection on loopback, the first as it is dialled.
func connect(tb testing.TB) (dialled, far *net.TCPConn) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	other, err := listener.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = near.Close(); _ = other.Close() })
	return near.(*net.TCPConn), other.(*net.TCPConn)
}

// opened returns a connection that was dialled.
func opened(tb testing.TB, dialled *net.TCPConn) *conn {
	tb.Helper()
	raw, err := dialled.SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	return &conn{TCPConn: dialled, raw: raw, all: newConnections()}
}

// ping sends a chunk to and fro between a reader and its far end, so that every read
// has to wait.
func ping(tb testing.TB, near net.Conn, far *net.TCPConn) (once func()) {
	tb.Helper()
	p, q := make([]byte, 4<<10), make([]byte, 4<<10)
	chunk := make([]byte, 300)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			if _, err := far.Read(q); err != nil {
				return
			}
			if _, err := far.Write(chunk); err != nil {
				return
			}
		}
	}()
	tb.Cleanup(func() { _ = near.Close(); <-over })
	return func() {
		if _, err := near.Write(chunk[:1]); err != nil {
			tb.Fatal(err)
		}
		if _, err := near.Read(p); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestConn_AReadCostsNoAllocation(t *testing.T) {
	near, far := connect(t)
	once := ping(t, opened(t, near), far)
	if allocs := testing.AllocsPerRun(500, once); allocs > 0 {
		t.Errorf("got %.2f allocations per read, want none", allocs)
	}
}
