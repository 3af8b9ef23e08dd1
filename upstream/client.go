package upstream

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"carryover/upstream/http1"
)

// ClientConfig configures a Client.
type ClientConfig struct {
	// DialTimeout bounds the set-up of a connection, and a TLS handshake.
	DialTimeout time.Duration
	// Key is sent to every engine as a bearer token, unless the leg has an authorization of its own. Empty sends none.
	Key string
}

// Client sends legs to instances. It is safe for concurrent use. It repeats no request, follows no redirect, uses no
// proxy from the environment, and asks for no content coding. Names are resolved for each connection.
type Client struct {
	http        *http1.Client
	open        *connections
	dialTimeout time.Duration
	tls         *tls.Config // nil for the system's certificates
	bearer      string      // the Authorization field of legs without one of their own, "" for none
	broken      atomic.Pointer[func(base string)]
}

// Limits of connections.
const (
	// idleFor is how long an idle connection is kept. vLLM's server (uvicorn) closes idle connections after 5 s, and a
	// request that is written at that moment is lost, so ours close first.
	idleFor = 4 * time.Second
	// idlePerHost is enough for every turn in flight.
	idlePerHost = 1024
)

// NewClient returns a client; Close releases its idle connections.
func NewClient(cfg ClientConfig) *Client {
	c := &Client{open: newConnections(), dialTimeout: cfg.DialTimeout}
	if cfg.Key != "" {
		c.bearer = "Bearer " + cfg.Key
	}
	c.http = http1.New(http1.Config{
		Dial: c.dial, IdlePerHost: idlePerHost, IdleFor: idleFor,
		Lost: func(scheme, authority string) { c.tellBroken(scheme + "://" + authority) },
	})
	return c
}

// Close drops idle connections. The client can still be used.
func (c *Client) Close() { c.http.Close() }

// dial connects to host:port.
func (c *Client) dial(ctx context.Context, scheme, address string) (http1.Conn, error) {
	opened, err := c.open.dial(ctx, address, c.dialTimeout)
	if err == nil && scheme == "https" {
		return secure(ctx, opened, address, c.tls, c.dialTimeout)
	}
	return opened, err
}

// Reach opens a connection to an instance and closes it, within DialTimeout. The error says why that failed. It sends
// nothing, and does not change what is known of the engine's health.
func (c *Client) Reach(ctx context.Context, instance *Instance) error {
	conn, err := c.open.dial(ctx, instance.Authority(), c.dialTimeout)
	if err != nil {
		return err
	}
	_ = conn.Close()
	return nil
}

// OnBreak sets the function that is called with the base URL of an instance whenever the instance has refused a
// connection, or ended one while a request was sent, before its answer was complete, or while the connection was idle.
// The end of a Stream is only reported to its reader. told is called without a lock, on any goroutine. It replaces the
// function that was set before.
func (c *Client) OnBreak(told func(base string)) { c.broken.Store(&told) }

// tellBroken reports a connection that an engine has refused or ended. A process that is restarted does both, and afterwards another
// process may answer under the same address and engine id.
func (c *Client) tellBroken(base string) {
	if told := c.broken.Load(); told != nil {
		(*told)(base)
	}
}

// Check looks whether the instance at a base URL has ended its idle connection, if there is one, and reports that as
// OnBreak describes. It does not wait, and takes a microsecond.
func (c *Client) Check(base string) {
	scheme, authority, _ := strings.Cut(base, "://")
	c.http.Check(scheme, authority)
}

// outgoing is a request with all that belongs to it until its answer comes.
type outgoing struct {
	http1.Request
	stream    *Stream     // is told which connection serves the request, nil for none
	connected atomic.Bool // something may have been sent
}

// request begins a request to base with the header fields that every request to an engine carries. The list is fixed:
// nothing is copied from a client's request.
func (c *Client) request(method, base, path, authorization string) *outgoing {
	q := &outgoing{Request: http1.Request{Method: method, Path: path}}
	q.Scheme, q.Authority, _ = strings.Cut(base, "://")
	q.add("Accept-Encoding", "identity")
	q.add("User-Agent", "carryover")
	if authorization == "" {
		authorization = c.bearer
	}
	if authorization != "" {
		q.add("Authorization", authorization)
	}
	return q
}

func (q *outgoing) add(name, value string) {
	q.Header = append(q.Header, http1.Field{Name: name, Value: value})
}

// rankHeader names the data-parallel rank that is to compute a request (vLLM #24945). Without it vLLM's balancer picks
// any rank, and the other ranks do not know its KV.
const rankHeader = "X-data-parallel-rank"

// rank returns the data-parallel rank that every request to the instance names, "" for none.
func (i *Instance) rank() string {
	if !i.Ranked {
		return ""
	}
	return strconv.Itoa(i.Rank)
}

// do sends a request and returns when the header of its answer has arrived; the caller closes the answer. Nothing was
// sent unless q.Connected was called.
func (c *Client) do(ctx context.Context, q *outgoing) (*http1.Response, error) {
	a, err := c.http.Do(ctx, &q.Request)
	if err != nil && ctx.Err() == nil && broke(err) {
		c.tellBroken(q.base())
	}
	return a, err
}

// broke reports whether an error means that the peer refused or ended the connection.
func broke(err error) bool {
	return isOneOf(err, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF)
}

// isConnected records the connection of the request before anything is written to it.
func (q *outgoing) isConnected(serving net.Conn) {
	q.connected.Store(true)
	if q.stream != nil {
		q.stream.connected(serving)
	}
}

// base returns the base URL that the request goes to.
func (q *outgoing) base() string { return q.Scheme + "://" + q.Authority }
