package upstream

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
)

// breaks tells of connections that engines refuse or end. A process that is restarted does both, so that what was known of it may be
// that of another from then on, under the same address and engine id.
type breaks struct {
	told atomic.Pointer[func(base string)]
}

func (b *breaks) tell(base string) {
	if told := b.told.Load(); told != nil {
		(*told)(base)
	}
}

// OnBreak has told called with the base URL of an instance whenever it has refused a connection or ended one: as a request was sent, before
// its answer had come whole, or while the connection was kept for the next. What has ended a Stream is told to its reader alone. It is
// called without a lock, on any goroutine. What was set before is called no more.
func (c *Client) OnBreak(told func(base string)) { c.broken.told.Store(&told) }

// Check looks whether the instance at a base URL has ended the connection that is kept to it, if one is, and tells of that as OnBreak
// says. It does not wait, and takes a microsecond.
func (c *Client) Check(base string) { c.transport.check(base) }

// do sends a request by the transport.
func (c *Client) do(ctx context.Context, q *outgoing) (answer, error) {
	a, err := c.transport.do(ctx, &q.Request)
	if err != nil && ctx.Err() == nil && broke(err) {
		c.broken.tell(q.base())
	}
	return a, err
}

// base is where the request goes.
func (q *outgoing) base() string { return q.Scheme + "://" + q.Authority }

// broke reports whether an error is that of a peer which refuses a connection, or has ended it.
func broke(err error) bool {
	for _, end := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
