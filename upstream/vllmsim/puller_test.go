package vllmsim

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/zmtp"
)

// puller is the PULL socket of a proxy, as much of it as the simulator's PUSH sockets need.
type puller struct {
	listener net.Listener
	frames   chan string // room for all that a test gets
	served   engine.Gate

	mu    sync.Mutex // guards what follows
	conns []net.Conn
	ended int
}

func startPuller(t *testing.T, address string) *puller {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must(t, err)
	p := &puller{listener: l, frames: make(chan string, 256)}
	p.served.Spawn(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
			p.served.Spawn(func() { p.serve(conn) })
		}
	})
	t.Cleanup(p.close)
	return p
}

func (p *puller) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *puller) serve(conn net.Conn) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended++
		_ = conn.Close()
	}()
	peer, err := zmtp.Open(conn, "PULL", "PUSH")
	for err == nil {
		var frames [][]byte
		if frames, err = peer.Receive(); err == nil {
			p.frames <- string(frames[0])
		}
	}
}

// await takes as many messages as are wanted, in whatever order they come.
func (p *puller) await(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for range want {
		select {
		case frame := <-p.frames:
			got = append(got, frame)
		case <-time.After(time.Minute):
			t.Fatalf("notified of %x, want %x", got, want)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("notified of %x, want %x", got, want)
	}
}

// rest are the messages that have come and were not awaited.
func (p *puller) rest() (more []string) {
	for {
		select {
		case got := <-p.frames:
			more = append(more, got)
		default:
			return more
		}
	}
}

// close stops listening; the senders see their connections end.
func (p *puller) close() {
	_ = p.listener.Close() // closing twice does no harm
	p.mu.Lock()
	for _, conn := range p.conns {
		// Half, so that the peer's end is seen.
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	p.mu.Unlock()
	p.served.Close()
}

// closedByPeer reports whether all connections have ended.
func (p *puller) closedByPeer() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended == len(p.conns)
}
