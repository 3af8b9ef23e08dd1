package upstream

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// maxErrorBody bounds what is read of an answer with another status than 200.
const maxErrorBody = 64 << 10

// Leg is one upstream call of a turn.
type Leg struct {
	Instance *Instance
	API      API
	// Body is the complete JSON body. It is released as soon as it is written.
	Body []byte
	// RequestID becomes X-Request-Id; vLLM builds the response id and
	// remote_request_id from it.
	RequestID string
	// Rank is the data-parallel rank that the leg names; "" leaves that to the instance.
	Rank string
	// Authorization replaces the client's configured key when not empty.
	Authorization string
	// Traceparent and Tracestate are the leg's place in a trace (W3C Trace Context); "" sends none.
	Traceparent, Tracestate string
}

// send sends a leg and returns its response if it is usable.
func (c *Client) send(ctx context.Context, leg Leg) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	body := &legBody{rest: leg.Body}
	size := int64(len(leg.Body))
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost,
		leg.Instance.BaseURL+leg.API.Path(), body)
	if err != nil {
		return nil, leg.failure(ctx, Dial, err)
	}
	// No GetBody: net/http must not be able to repeat what may have been sent.
	req.ContentLength = size
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", leg.RequestID)
	c.headers(req, leg.Authorization)
	leg.Instance.rank(req)
	if leg.Rank != "" {
		req.Header.Set(rankHeader, leg.Rank)
	}
	if leg.Traceparent != "" {
		req.Header.Set("Traceparent", leg.Traceparent)
		if leg.Tracestate != "" {
			req.Header.Set("Tracestate", leg.Tracestate)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		kind := Broken
		if !connected.Load() {
			kind = Dial
		} else if ctx.Err() == nil {
			// An engine that restarts breaks all its connections. The leg that follows
			// must not be given another one whose end has not been noticed yet.
			c.http.CloseIdleConnections()
		}
		return nil, leg.failure(ctx, kind, wireError(kind, err))
	}
	if err := leg.usable(ctx, resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

var errNotHTTP = errors.New("the answer breaks HTTP")

// wireError keeps what says how a connection failed. Everything else that net/http
// has to say of an answer quotes it, and answers don't belong in logs.
func wireError(kind Kind, err error) error {
	var op *net.OpError
	if kind == Dial || errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return errNotHTTP
}

// usable turns every answer that is not a plain 200 into an error.
func (l Leg) usable(ctx context.Context, resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		e := l.failure(ctx, Status, nil)
		e.Status = resp.StatusCode
		e.RetryAfter = resp.Header.Get("Retry-After")
		body, err := ReadAll(resp.Body, maxErrorBody)
		if err == nil {
			e.Fault = ReadFault(body)
		}
		return e
	}
	if media := mediaType(resp.Header.Get("Content-Type")); media != "application/json" && media != "text/event-stream" {
		return l.failure(ctx, Garbage, errors.New("content type is neither JSON nor an event stream"))
	}
	// Nothing here inflates, and the client was not promised a coding.
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return l.failure(ctx, Garbage, errors.New("content is coded"))
	}
	return nil
}

// mediaType reads a Content-Type, "" if it can't be read.
func mediaType(contentType string) string {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return media
}

// failure builds the error of a leg; a leg that our own time limit or the client
// ended says so instead of blaming the connection.
func (l Leg) failure(ctx context.Context, kind Kind, err error) *LegError {
	e := &LegError{Role: l.Instance.Role, Instance: l.Instance.Name, Kind: kind, Sent: kind != Dial, Forwarded: l.Authorization != "", Err: err}
	if ctx.Err() == nil {
		return e
	}
	e.Err = context.Cause(ctx)
	if IsTimeout(e.Err) {
		e.Kind = Timeout
	} else {
		e.Kind = Gone
	}
	return e
}

// legBody is a request body that lets go of its bytes when the transport closes
// it. Without that a stream of minutes keeps its prompt in memory: the transport
// holds the request until the response body ends.
type legBody struct {
	mu   sync.Mutex // guards rest: the transport may close while it still reads
	rest []byte
}

// Read implements io.Reader.
func (b *legBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *legBody) Close() error {
	b.mu.Lock()
	b.rest = nil
	b.mu.Unlock()
	return nil
}
