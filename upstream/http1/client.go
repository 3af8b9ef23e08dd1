// Package http1 is a client for HTTP/1.1 (RFC 9112) for legs to engines: it sends requests with a body of known length, reads answers as
// they arrive, and keeps connections for the next request.
//
// net/http's Transport costs two goroutines, channels between them and two buffers per connection. Here the calling goroutine writes the
// request and reads the answer straight from the connection into its own buffer, so an open answer holds none of ours. A leg takes 0.4 of
// the CPU time that it takes with net/http's client, and an open one 4 KB in place of 28.
//
// It promises that
//
//   - it sends nothing twice: a request goes out on one connection, and the caller decides about retries
//     ([Request].Connected tells whether a byte can have been sent);
//   - it refuses an answer with ambiguous framing (head.go, chunks.go), and a connection serves another request only if its answer
//     ended where the framing says and no byte followed (pool.go, [Conn].Quiet);
//   - a read waits only while there is nothing to return, and leaves a byte of the answer in a buffer only if the caller's is full;
//   - the end of a context ends every wait at once, with its cause as the error, until an answer is detached from it
//     ([Response.Detach]);
//   - it copies at most 16 KiB of a request's body, and nothing refers to the body when [Client.Do] has returned. A goroutine writes a
//     longer one, because the peer may answer before it has read that (exchange.go);
//   - no goroutine outlives a call of [Client.Do]; one timer closes all idle connections;
//   - errors are texts of this package or errors of the connection, and never quote a peer.
//
// It follows no redirect, knows no proxies, cookies or codings, and speaks no HTTP/2. The caller dials and does TLS (Config.Dial). Only
// package upstream uses it.
package http1

import (
	"context"
	"io"
	"sync"
	"time"
)

// Config configures a Client.
type Config struct {
	// Dial connects to host:port, with TLS if the scheme is https. It must end when ctx does.
	Dial func(ctx context.Context, scheme, address string) (Conn, error)
	// IdlePerHost is how many idle connections are kept per scheme and authority.
	IdlePerHost int
	IdleFor     time.Duration
	// Lost is called, without a lock, for each idle connection that its peer has ended; it may be nil.
	Lost func(scheme, authority string)
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	dial func(ctx context.Context, scheme, address string) (Conn, error)
	pool pool

	requests sync.Pool // *requestBuffer
	answers  sync.Pool // *answerBuffer
}

// A request holds a requestBuffer while it is written, an answer an answerBuffer until the caller has read the body bytes that came with the
// header.
type (
	requestBuffer struct {
		bytes  [inline]byte
		pieces [8][]byte
	}
	answerBuffer [4 << 10]byte
)

// New returns a client; Close releases its idle connections.
func New(cfg Config) *Client {
	return &Client{
		dial: cfg.Dial, pool: pool{idle: map[peer][]resting{}, most: cfg.IdlePerHost, keep: cfg.IdleFor, lost: cfg.Lost},
		requests: sync.Pool{New: func() any { return new(requestBuffer) }},
		answers:  sync.Pool{New: func() any { return new(answerBuffer) }},
	}
}

// Close closes idle connections. The client can still be used.
func (c *Client) Close() { c.pool.dropAll() }

// CloseIdle closes the idle connections to a scheme and an authority.
func (c *Client) CloseIdle(scheme, authority string) { c.pool.drop(peer{scheme, authority}) }

// Check looks at the idle connection that was used last. If its peer has closed it, Check closes all idle connections to that peer and calls
// Lost. It does not wait.
func (c *Client) Check(scheme, authority string) { c.pool.check(peer{scheme, authority}) }

// Do sends a request and returns when the header of its answer has arrived; the caller closes the Response. The end of ctx ends the request,
// and the reading of the Response unless it is detached; the error is then context.Cause.
func (c *Client) Do(ctx context.Context, q *Request) (*Response, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	conn, err := c.connect(ctx, q)
	if err != nil {
		return nil, err
	}
	if q.Connected != nil {
		q.Connected(conn)
	}
	r := &Response{client: c, conn: conn, to: q.peer(), ctx: ctx}
	r.stop = context.AfterFunc(ctx, r.interrupt)
	if err := r.exchange(q); err != nil {
		err = r.why(err)
		r.end(false)
		return nil, err
	}
	if r.framing == fixed && r.left == 0 {
		r.finish(io.EOF)
	}
	return r, nil
}

func (c *Client) connect(ctx context.Context, q *Request) (conn Conn, err error) {
	if ctx.Err() == nil {
		if conn = c.pool.take(q.peer()); conn == nil {
			conn, err = c.dial(ctx, q.Scheme, Address(q.Scheme, q.Authority))
		}
	}
	if ctx.Err() == nil {
		return conn, err
	}
	if conn != nil && err == nil { // nothing has been sent on it
		c.pool.put(q.peer(), conn)
	}
	return nil, context.Cause(ctx)
}
