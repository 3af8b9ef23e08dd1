package upstream

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"syscall"

	"carryover/upstream/http1"
)

// breaks reports connections that engines refuse or end. A process that is restarted does both, and afterwards another
// process may answer under the same address and engine id.
type breaks struct {
	told atomic.Pointer[func(base string)]
}

func (b *breaks) tell(base string) {
	if told := b.told.Load(); told != nil {
		(*told)(base)
	}
}

// OnBreak sets the function that is called with the base URL of an instance whenever the instance has refused a
// connection, or ended one while a request was sent, before its answer was complete, or while the connection was idle.
// The end of a Stream is only reported to its reader. told is called without a lock, on any goroutine. It replaces the
// function that was set before.
func (c *Client) OnBreak(told func(base string)) { c.broken.told.Store(&told) }

// Check looks whether the instance at a base URL has ended its idle connection, if there is one, and reports that as
// OnBreak describes. It does not wait, and takes a microsecond.
func (c *Client) Check(base string) {
	scheme, authority, _ := strings.Cut(base, "://")
	c.http.Check(scheme, authority)
}

// do sends a request and returns when the header of its answer has arrived; the caller closes the answer. Nothing was
// sent unless q.Connected was called.
func (c *Client) do(ctx context.Context, q *outgoing) (*http1.Response, error) {
	a, err := c.http.Do(ctx, &q.Request)
	if err != nil && ctx.Err() == nil && broke(err) {
		c.broken.tell(q.base())
	}
	return a, err
}

// base returns the base URL that the request goes to.
func (q *outgoing) base() string { return q.Scheme + "://" + q.Authority }

// broke reports whether an error means that the peer refused or ended the connection.
func broke(err error) bool {
	for _, end := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
