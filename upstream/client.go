package upstream

import (
	"context"
	"crypto/tls"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"carryover/upstream/http1"
)

// ClientConfig configures a Client.
type ClientConfig struct {
	DialTimeout time.Duration
	// Key is the bearer token of legs without an authorization of their own. Empty sends none.
	Key string
}

// Client sends legs to instances. It is safe for concurrent use. It repeats no request, follows no redirect, uses no proxy from the
// environment, and accepts no content coding. It resolves names for each connection.
type Client struct {
	http        *http1.Client
	open        *connections
	dialTimeout time.Duration
	tls         *tls.Config // nil for the system's certificates
	bearer      string      // Authorization of legs without one of their own, "" for none
	broken      atomic.Pointer[func(base string)]
}

const (
	// idleFor is below the 5 s after which vLLM's server (uvicorn) closes idle connections: a request that is written at that moment
	// is lost.
	idleFor     = 4 * time.Second
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

func (c *Client) dial(ctx context.Context, scheme, address string) (http1.Conn, error) {
	opened, err := c.open.dial(ctx, address, c.dialTimeout)
	if err == nil && scheme == "https" {
		return secure(ctx, opened, address, c.tls, c.dialTimeout)
	}
	return opened, err
}

// Reach opens a connection to an instance and closes it, within DialTimeout. It sends nothing, and does not change the engine's
// health.
func (c *Client) Reach(ctx context.Context, instance *Instance) error {
	conn, err := c.open.dial(ctx, instance.Authority(), c.dialTimeout)
	if err != nil {
		return err
	}
	_ = conn.Close()
	return nil
}

// OnBreak sets the function that is called with an instance's base URL when the instance refuses a connection or ends one. The end
// of a Stream is reported to its reader only. told is called without a lock, on any goroutine, and replaces the earlier function.
func (c *Client) OnBreak(told func(base string)) { c.broken.Store(&told) }

// tellBroken reports a connection that an engine has refused or ended. A restart does both; the next process may have the same
// address and engine id.
func (c *Client) tellBroken(base string) {
	if told := c.broken.Load(); told != nil {
		(*told)(base)
	}
}

// Check calls the function of OnBreak if the instance has ended its idle connection. It does not wait, and takes a microsecond.
func (c *Client) Check(base string) {
	scheme, authority, _ := strings.Cut(base, "://")
	c.http.Check(scheme, authority)
}

type outgoing struct {
	http1.Request
	connected bool // something may have been sent
}

// request sets the header fields of every request to an engine. The list is fixed: nothing is copied from a client's request.
func (c *Client) request(method, base, path, authorization string) *outgoing {
	q := &outgoing{Request: http1.Request{Method: method, Path: path}}
	q.Scheme, q.Authority, _ = strings.Cut(base, "://")
	q.Header = make([]http1.Field, 0, 8) // a leg has at most as many
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

// rankHeader names the data-parallel rank that computes a request (vLLM #24945). Without it vLLM picks any rank, and other ranks do
// not know its KV.
const rankHeader = "X-data-parallel-rank"

func (i *Instance) rank() string {
	if !i.Ranked {
		return ""
	}
	return strconv.Itoa(i.Rank)
}

// do returns when the header of the answer has arrived; the caller closes it. Nothing was sent unless q.Connected was called.
func (c *Client) do(ctx context.Context, q *outgoing) (*http1.Response, error) {
	a, err := c.http.Do(ctx, &q.Request)
	if err != nil && ctx.Err() == nil && broke(err) {
		c.tellBroken(q.base())
	}
	return a, err
}

func broke(err error) bool {
	return isOneOf(err, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF)
}

func (q *outgoing) base() string { return q.Scheme + "://" + q.Authority }
