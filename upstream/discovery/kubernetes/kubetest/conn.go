package kubetest

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one end of a connection in memory. Its writes don't wait for a reader, as those of a socket: with both ends writing, as
// when a TLS client refuses a certificate, the ends of a net.Pipe stand still.
type conn struct{ in, out *flow }

// flow is what goes one way.
type flow struct {
	mu       sync.Mutex // guards everything below
	pending  []byte
	ended    bool          // nothing comes any more
	left     bool          // nothing is read any more
	deadline time.Time     // of reads
	news     chan struct{} // closed and replaced with each change
}

func connect() (*conn, *conn) {
	one, other := &flow{news: make(chan struct{})}, &flow{news: make(chan struct{})}
	return &conn{in: one, out: other}, &conn{in: other, out: one}
}

func (f *flow) change(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
	close(f.news)
	f.news = make(chan struct{})
}

// read takes what there is. wait is closed when it is worth trying again; it is nil where n and err are the answer.
func (f *flow) read(p []byte) (n int, wait <-chan struct{}, deadline time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.left:
		return 0, nil, f.deadline, net.ErrClosed
	case !f.deadline.IsZero() && !time.Now().Before(f.deadline):
		return 0, nil, f.deadline, os.ErrDeadlineExceeded
	case len(f.pending) > 0:
		n = copy(p, f.pending)
		f.pending = f.pending[n:]
		return n, nil, f.deadline, nil
	case f.ended:
		return 0, nil, f.deadline, io.EOF
	}
	return 0, f.news, f.deadline, nil
}

// Read waits for what the other end writes.
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, wait, deadline, err := c.in.read(p)
		if wait == nil {
			return n, err
		}
		await(wait, deadline)
	}
}

func await(wait <-chan struct{}, deadline time.Time) {
	if deadline.IsZero() {
		<-wait
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-wait:
	case <-timer.C:
	}
}

// Write takes everything, unless either end is closed.
func (c *conn) Write(p []byte) (n int, err error) {
	c.out.change(func() {
		if c.out.ended || c.out.left {
			err = net.ErrClosed
			return
		}
		c.out.pending = append(c.out.pending, p...)
		n = len(p)
	})
	return n, err
}

// Close ends both ways; the other end still reads what was written.
func (c *conn) Close() error {
	c.out.change(func() { c.out.ended = true })
	c.in.change(func() { c.in.left = true })
	return nil
}

// SetReadDeadline ends reads that wait beyond t.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.deadline = t })
	return nil
}

// SetWriteDeadline does nothing: writes don't wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline is that of reads.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// LocalAddr and RemoteAddr are of no use but to be some.
func (c *conn) LocalAddr() net.Addr { return &net.UnixAddr{Name: "kubetest", Net: "pipe"} }

// RemoteAddr is as LocalAddr.
func (c *conn) RemoteAddr() net.Addr { return c.LocalAddr() }

// Pipe is a listener whose connections are in memory, so that a test can run in a bubble of testing/synctest.
type Pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// NewPipe returns one that is open.
func NewPipe() *Pipe {
	p := &Pipe{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// Dial connects, whatever the address. It fails like a port where nothing listens once the pipe is closed.
func (p *Pipe) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := connect()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept returns the next connection.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listener, not its connections.
func (p *Pipe) Close() error {
	p.close()
	return nil
}

// Addr is of no use but to be one.
func (p *Pipe) Addr() net.Addr { return &net.UnixAddr{Name: "kubetest", Net: "pipe"} }
