package http1

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Response is an answer whose header has arrived. One goroutine at a time reads its body; Close may be called at any time.
type Response struct {
	Status int // 200 to 599
	// ContentType and RetryAfter are the first fields of these names, ContentEncoding joins all fields of its name; "" where there is none.
	// Other fields are dropped.
	ContentType, ContentEncoding, RetryAfter string

	// The connection serves one request. When the answer ends, it returns to its pool or is closed.
	conn   Conn
	client *Client
	to     peer
	ctx    context.Context //nolint:containedctx // of the request; its end ends the reading too. nil when detached
	stop   func() bool     // stops watching ctx
	cut    bool            // the request was not written completely
	last   bool            // the connection ends with this answer
	ended  atomic.Bool     // the connection is in the pool again, or closed

	reading sync.Mutex // guards the rest
	framing framing
	left    int64 // of a fixed length
	chunks  chunks
	buffer  *answerBuffer // holds rest; nil if rest has its own memory
	rest    []byte        // body bytes that arrived with the header and were not read yet
	err     error         // the error of further reads
}

// framing tells how a body ends (RFC 9112, 6.3).
type framing uint8

const (
	fixed framing = iota
	chunked
	untilClose
)

func (r *Response) begin(h *head) {
	r.Status, r.ContentType, r.ContentEncoding, r.RetryAfter = h.status, h.contentType, h.contentEncoding, h.retryAfter
	r.last = h.last
	switch {
	case h.status == 204 || h.status == 304:
		r.last = r.last || h.chunked || h.length > 0
	case h.chunked:
		r.framing = chunked
	case h.length >= 0:
		r.left = h.length
	default:
		r.framing, r.last = untilClose, true
	}
	if r.framing == fixed && int64(len(r.rest)) > r.left {
		r.rest, r.last = r.rest[:r.left], true
	}
	if len(r.rest) == 0 {
		r.release()
	}
}

// Detach makes the answer survive the end of the request's context, and returns the cause if that has ended already. It is called before
// anything else.
func (r *Response) Detach() error {
	if !r.ended.Load() && !r.stop() {
		return context.Cause(r.ctx)
	}
	r.ctx = nil
	return nil
}

// Here reports whether all of the body has arrived, so that reading it does not wait.
func (r *Response) Here() bool {
	r.reading.Lock()
	defer r.reading.Unlock()
	return r.framing == fixed && int64(len(r.rest)) == r.left
}

// Left returns the number of unread body bytes, -1 if only the end of the body will tell.
func (r *Response) Left() int64 {
	if r.framing != fixed {
		return -1
	}
	return r.left
}

// Read implements io.Reader. It returns bytes that have arrived, and waits only if there are none. Unless p is filled, no byte of the
// answer is left in a buffer. The error is io.EOF only at the end that the framing gives, and io.ErrUnexpectedEOF if the connection ends
// before.
func (r *Response) Read(p []byte) (n int, err error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	for n < len(p) && len(r.rest) > 0 && r.err == nil {
		m := copy(p[n:], r.rest)
		r.rest = r.rest[m:]
		n += r.unframe(p[n : n+m])
	}
	if len(r.rest) == 0 {
		r.release()
	}
	for n == 0 && len(p) > 0 && r.err == nil {
		if r.framing == fixed {
			p = p[:min(int64(len(p)), r.left)]
		}
		m, err := r.conn.Read(p)
		if m == 0 {
			if r.framing != untilClose || err != io.EOF { //nolint:errorlint // a connection says io.EOF itself
				err = r.why(early(err))
			}
			r.finish(err)
			break
		}
		n = r.unframe(p[:m])
	}
	if n > 0 && r.err != io.EOF { //nolint:errorlint // it is set here
		return n, nil
	}
	return n, r.err
}

func (r *Response) unframe(p []byte) int {
	switch r.framing {
	case fixed:
		if r.left -= int64(len(p)); r.left == 0 {
			r.finish(io.EOF)
		}
	case chunked:
		n, behind, err := r.chunks.decode(p)
		switch {
		case err != nil:
			r.finish(err)
		case r.chunks.state == chunkOver:
			r.last = r.last || len(behind) > 0 || len(r.rest) > 0
			r.finish(io.EOF)
		}
		return n
	}
	return len(p)
}

func (r *Response) finish(err error) {
	r.err = err
	r.end(err == io.EOF) //nolint:errorlint // it is set here
}

func (r *Response) release() {
	if r.buffer != nil {
		r.client.answers.Put(r.buffer)
	}
	r.buffer, r.rest = nil, nil
}

// Close ends the answer. Its connection is closed unless all of the answer has been read.
func (r *Response) Close() error {
	r.end(false)
	r.reading.Lock()
	defer r.reading.Unlock()
	r.release()
	if r.err == nil {
		r.err = net.ErrClosed
	}
	return nil
}

func (r *Response) why(err error) error {
	if r.ctx != nil && r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if r.ended.Load() {
		return net.ErrClosed
	}
	return err
}

// end releases the connection, once. If the answer is complete, it serves other requests.
func (r *Response) end(complete bool) {
	if !r.ended.CompareAndSwap(false, true) {
		return
	}
	watched := r.ctx == nil || r.stop() // else it is being interrupted
	if complete && watched && !r.last && !r.cut {
		r.client.pool.put(r.to, r.conn)
		return
	}
	r.interrupt()
}

// interrupt ends every wait on the connection, and closes it. The deadline comes first because TLS sends a close message, which may take a
// while.
func (r *Response) interrupt() {
	_ = r.conn.SetDeadline(past())
	_ = r.conn.Close()
}
