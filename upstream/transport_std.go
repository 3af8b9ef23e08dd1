package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/http1"
)

// stdTransport is the transport that uses net/http.
type stdTransport struct{ http *http.Client }

func newStdTransport(limit time.Duration, dial dialler) *stdTransport {
	t := &http.Transport{
		DialContext:            dial,
		TLSHandshakeTimeout:    limit,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleFor,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
	}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := t.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return secure(ctx, c, address, t.TLSClientConfig, limit)
	}
	return &stdTransport{&http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (t *stdTransport) do(ctx context.Context, q *http1.Request) (answer, error) {
	// The end of a request's context also ends the reading of its answer. So a request whose body may be detached gets
	// a context of its own.
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	resp, err := t.send(own, q) //nolint:bodyclose // the caller closes it
	if err != nil {
		stop()
		cancel(nil)
		return answer{}, err
	}
	h := resp.Header
	return answer{
		resp.StatusCode, h.Get("Content-Type"), strings.Join(h.Values("Content-Encoding"), ", "), h.Get("Retry-After"),
		&stdBody{resp.Body, ctx, stop, cancel},
	}, nil
}

// stdBody is the body of a net/http answer.
type stdBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the request
	stop   func() bool     // stops watching ctx
	cancel context.CancelCauseFunc
}

// Detach implements answerBody.
func (b *stdBody) Detach() error {
	if !b.stop() {
		return context.Cause(b.ctx)
	}
	return nil
}

// Close implements io.Closer.
func (b *stdBody) Close() error {
	defer b.cancel(nil)
	b.stop()
	return b.ReadCloser.Close()
}

// send sends a request whose answer ends with ctx.
func (t *stdTransport) send(ctx context.Context, q *http1.Request) (*http.Response, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if q.Connected != nil {
				q.Connected(info.Conn)
			}
		},
		// net/http calls it at the end of the answer, before it reads anything else from the connection
		// (persistConn.readLoop).
		PutIdleConn: func(error) {
			if q.Done != nil {
				q.Done()
			}
		},
	})
	var body io.Reader
	size := int64(rawjson.Pieces(q.Body).Len())
	if size > 0 {
		sent := &sentBody{rest: q.Body}
		body = sent
		defer sent.keep()
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, q.Scheme+"://"+q.Authority+q.Path, body)
	if err != nil {
		return nil, err
	}
	// No GetBody: net/http must not be able to repeat a request that may have been sent.
	req.ContentLength = size
	q.Body = nil
	for _, f := range q.Header {
		req.Header.Set(f.Name, f.Value)
	}
	return t.http.Do(req)
}

// closeIdle closes all idle connections: net/http can't close those of one host.
func (t *stdTransport) closeIdle(string) { t.closeAll() }

// check does nothing: net/http watches its idle connections, and tells nobody.
func (t *stdTransport) check(string) net.Conn { return nil }

func (t *stdTransport) closeAll() { t.http.CloseIdleConnections() }

// sentBody is a request body that drops its bytes when net/http closes it. net/http holds the request until the
// response body ends, so without this a stream of minutes would keep its prompt in memory.
type sentBody struct {
	mu   sync.Mutex // guards the rest: net/http may close while it still reads
	rest rawjson.Pieces
	read int // bytes of the first piece that were read
}

// Read implements io.Reader.
func (b *sentBody) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n < len(p) && len(b.rest) > 0 {
		m := copy(p[n:], b.rest[0][b.read:])
		n, b.read = n+m, b.read+m
		if b.read == len(b.rest[0]) {
			b.rest, b.read = b.rest[1:], 0
		}
	}
	if n == 0 && len(b.rest) == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// keep copies what is left: net/http may still read it if the peer answers before it has read all, and the texts that
// the body refers to may change once the request has returned.
func (b *sentBody) keep() {
	b.mu.Lock()
	if len(b.rest) > 0 {
		b.rest, b.read = rawjson.Pieces{b.rest.Bytes()[b.read:]}, 0
	}
	b.mu.Unlock()
}

// Close implements io.Closer.
func (b *sentBody) Close() error {
	b.mu.Lock()
	b.rest = nil
	b.mu.Unlock()
	return nil
}
