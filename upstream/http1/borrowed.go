package http1

import (
	"context"
	"net"
	"sync/atomic"
)

// borrowed is the connection that serves one request. When the answer ends, it returns to its pool or is closed.
type borrowed struct {
	Conn
	client *Client
	to     peer
	ctx    context.Context //nolint:containedctx // of the request; its end ends the reading too. nil when detached
	stop   func() bool     // stops watching ctx
	cut    bool            // the request was not written completely
	last   bool            // the connection ends with this answer
	ended  atomic.Bool     // the connection belongs to the pool again, or is closed
}

// detach makes the connection survive the end of the request's context, or returns the cause for which that has ended.
func (b *borrowed) detach() error {
	if !b.ended.Load() && !b.stop() {
		return context.Cause(b.ctx)
	}
	b.ctx = nil
	return nil
}

// why returns the reason for which the connection failed.
func (b *borrowed) why(err error) error {
	if b.ctx != nil && b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	if b.ended.Load() {
		return net.ErrClosed
	}
	return err
}

// end releases the connection, once. If the answer is complete, it serves other requests.
func (b *borrowed) end(complete bool) {
	if !b.ended.CompareAndSwap(false, true) {
		return
	}
	watched := b.ctx == nil || b.stop() // else it is being interrupted
	if complete && watched && !b.last && !b.cut {
		b.client.pool.put(b.to, b.Conn)
		return
	}
	b.interrupt()
}

// interrupt ends every wait on the connection, and closes it. The deadline comes first because TLS sends a close
// message, which may take a while.
func (b *borrowed) interrupt() {
	_ = b.SetDeadline(past())
	_ = b.Close()
}
