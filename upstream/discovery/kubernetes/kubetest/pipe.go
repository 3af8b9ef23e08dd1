package kubetest

import (
	"context"
	"net"
	"sync"
)

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
