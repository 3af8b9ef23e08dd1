package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Forwarder passes TCP connections on, and has the faults of a network.
type Forwarder struct {
	listener net.Listener
	running  sync.WaitGroup // accept, and what serves a link

	mu         sync.Mutex // guards what follows
	target     string
	cutReplies bool
	cuts       int           // connections that CutReplies has cut
	rounds     int           // see RoundTrips
	gate       chan struct{} // closed to end a Hang; nil while there is none
	narrow     int           // see Narrow
	wider      chan struct{} // closed to end a Narrow; nil while there is none
	links      map[*link]struct{}
}

// link is one connection of a client and the one to the target that belongs to it.
type link struct {
	cut chan struct{} // closed with the connections

	asked, answered int // bytes since the other side spoke last; guarded by Forwarder.mu

	mu     sync.Mutex // guards what follows
	conns  []net.Conn
	closed bool
}

// add has close close conn too. It reports whether there is still a link, and closes conn if not.
func (l *link) add(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		conn.Close()
		return false
	}
	l.conns = append(l.conns, conn)
	return true
}

// close cuts both connections. It may be called again.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.cut)
	for _, conn := range l.conns {
		conn.Close()
	}
}

// Forward listens on a free loopback port and passes connections on to target. It ends with the test.
func Forward(tb testing.TB, target string) *Forwarder {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen for a forwarder: %v", err)
	}
	f := &Forwarder{listener: l, target: target, links: make(map[*link]struct{})}
	f.running.Go(func() { f.accept(tb.Context()) })
	tb.Cleanup(func() {
		l.Close()
		f.Cut()
		f.running.Wait()
	})
	return f
}

// Addr returns host:port for clients.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// Target has new connections go to addr, and cuts those that exist.
func (f *Forwarder) Target(addr string) {
	f.Redirect(addr)
	f.Cut()
}

// Redirect has new connections go to addr. Those that exist stay, as they do with load balancers.
func (f *Forwarder) Redirect(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = addr
}

// CutReplies has, while it is on, the first byte of a reply cut its connection instead of reaching the
// client: the command was carried out, and its answer is lost. Each connection is good for one such
// command, and a connection made meanwhile only for its greeting (HELLO, AUTH): have the client
// connect before.
func (f *Forwarder) CutReplies(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutReplies = on
}

// Hang keeps back, while it is on, what either side sends, the end of its connection included. New
// connections are accepted, and hang as well. When it is off again everything is passed on, so that a
// command arrives whose client has long given up.
func (f *Forwarder) Hang(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case on && f.gate == nil:
		f.gate = make(chan struct{})
	case !on && f.gate != nil:
		close(f.gate)
		f.gate = nil
	}
}

// Narrow has a request, or an answer, get stuck after so many bytes, as where a network or a server is too slow for
// what is large. The rest is kept back as by Hang, until Narrow is called again; 0 lets everything through.
func (f *Forwarder) Narrow(bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wider != nil {
		close(f.wider)
		f.wider = nil
	}
	if f.narrow = bytes; bytes > 0 {
		f.wider = make(chan struct{})
	}
}

// Cut closes all connections that exist. What Hang keeps back of them is lost.
func (f *Forwarder) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.links {
		l.close()
	}
}

// accept serves clients until the listener is closed.
func (f *Forwarder) accept(ctx context.Context) {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		l := &link{cut: make(chan struct{}), conns: []net.Conn{client}}
		// In one step with reading the target, so that Target misses no link to the old one.
		f.mu.Lock()
		f.links[l] = struct{}{}
		target := f.target
		f.mu.Unlock()
		f.running.Go(func() { f.serve(ctx, l, client, target) })
	}
}

// serve passes bytes on in both directions until both have ended or the link is cut.
func (f *Forwarder) serve(ctx context.Context, l *link, client net.Conn, target string) {
	defer func() {
		l.close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.links, l)
	}()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil || !l.add(server) {
		return
	}
	var directions sync.WaitGroup
	directions.Go(func() { f.pump(l, server, client, false) })
	directions.Go(func() { f.pump(l, client, server, true) })
	directions.Wait()
}

// pump passes on what one side sends. Its end is passed on as such: to close a connection outright can
// make the kernel drop bytes that the other side has not read yet.
func (f *Forwarder) pump(l *link, to, from net.Conn, replies bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if !f.released(l) || replies && n > 0 && f.cutsReply() {
			l.close()
			return
		}
		if n > 0 && !f.pass(l, to, buffer[:n], replies) {
			l.close()
			return
		}
		if errors.Is(err, io.EOF) {
			_ = to.(*net.TCPConn).CloseWrite() // an error says that the other side has gone too
			return
		}
		if err != nil {
			l.close()
			return
		}
	}
}

// pass writes what one side said, as far as it is not stuck, and reports whether the link is still there then.
func (f *Forwarder) pass(l *link, to net.Conn, said []byte, replies bool) bool {
	through, wider := f.through(l, len(said), replies)
	if _, err := to.Write(said[:through]); err != nil {
		return false
	}
	if through == len(said) {
		return true
	}
	select {
	case <-wider:
	case <-l.cut:
		return false
	}
	_, err := to.Write(said[through:])
	return err == nil
}

// through returns how many of n bytes are not stuck, and what is closed when the others are not any more.
func (f *Forwarder) through(l *link, n int, replies bool) (int, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !replies && n > 0 && l.asked == 0 {
		f.rounds++
	}
	spoken, silent := &l.asked, &l.answered
	if replies {
		spoken, silent = silent, spoken
	}
	*spoken, *silent = *spoken+n, 0
	if f.narrow == 0 {
		return n, nil
	}
	return min(n, max(0, f.narrow-(*spoken-n))), f.wider
}

// released waits while the forwarder hangs, and reports whether the link is still there then.
func (f *Forwarder) released(l *link) bool {
	for {
		f.mu.Lock()
		gate := f.gate
		f.mu.Unlock()
		if gate == nil {
			return true
		}
		select {
		case <-gate:
		case <-l.cut:
			return false
		}
	}
}

// cutsReply reports whether CutReplies is on, and counts.
func (f *Forwarder) cutsReply() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cutReplies {
		f.cuts++
	}
	return f.cutReplies
}

// RoundTrips returns how often a client has asked on a new connection or after an answer: what it sends before the
// server answers is one question.
func (f *Forwarder) RoundTrips() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rounds
}

// Cuts returns how many replies CutReplies has cut off.
func (f *Forwarder) Cuts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cuts
}
