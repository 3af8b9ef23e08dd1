package kubetest

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one end of a connection in memory. Like a socket's, its writes don't wait for a reader. With a net.Pipe both ends may
// write and wait for ever, as when a TLS client refuses a certificate.
type conn struct{ in, out *flow }

type flow struct {
	mu       sync.Mutex // guards the rest
	pending  []byte
	ended    bool          // by the writer
	left     bool          // by the reader
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

// read returns the bytes that are there. If there are none, a retry makes sense when wait is closed; a nil wait means that n and
// err are the answer.
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

// Close ends both directions; the other end still reads what was written.
func (c *conn) Close() error {
	c.out.change(func() { c.out.ended = true })
	c.in.change(func() { c.in.left = true })
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.deadline = t })
	return nil
}

// SetWriteDeadline does nothing: writes don't wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) LocalAddr() net.Addr { return &net.UnixAddr{Name: "kubetest", Net: "pipe"} }

func (c *conn) RemoteAddr() net.Addr { return c.LocalAddr() }

// Pipe is a listener whose connections are in memory, so that a test can run in a bubble of testing/synctest.
type Pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// NewPipe returns an open pipe.
func NewPipe() *Pipe {
	p := &Pipe{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// Dial connects, whatever the address. On a closed pipe it fails like a port where nothing listens.
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

// Addr returns a constant, for net.Listener.
func (p *Pipe) Addr() net.Addr { return &net.UnixAddr{Name: "kubetest", Net: "pipe"} }
