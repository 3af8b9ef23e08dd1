package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
	"carryover/upstream/http1"
)

// maxErrorBody bounds how much of an answer with another status than 200 is read.
const maxErrorBody = 64 << 10

// Leg is one upstream call of a turn.
type Leg struct {
	Instance *Instance
	API      body.API
	// Body is the complete JSON body. The leg drops it as soon as it is written. The texts that it refers to must not
	// change before the leg has ended.
	Body rawjson.Pieces
	// RequestID becomes X-Request-Id; vLLM builds the response id and
	// remote_request_id from it.
	RequestID string
	// Rank is the data-parallel rank that the leg names; "" uses the instance's.
	Rank string
	// Authorization replaces the client's configured key when not empty.
	Authorization string
	// Traceparent and Tracestate are the leg's trace context (W3C Trace Context); "" sends none.
	Traceparent, Tracestate string
}

// send sends a leg and returns its answer if it is usable. Afterwards the leg has no body any more. stream is told
// which connection serves the leg; it may be nil.
func (c *Client) send(ctx context.Context, leg *Leg, stream *Stream) (*http1.Response, error) {
	q := c.request(http.MethodPost, leg.Instance.BaseURL, leg.API.Path(), leg.Authorization)
	q.add("Content-Type", "application/json")
	if leg.RequestID != "" {
		q.add("X-Request-Id", leg.RequestID)
	}
	if rank := cmp.Or(leg.Rank, leg.Instance.rank()); rank != "" {
		q.add(rankHeader, rank)
	}
	if leg.Traceparent != "" {
		q.add("Traceparent", leg.Traceparent)
		if leg.Tracestate != "" {
			q.add("Tracestate", leg.Tracestate)
		}
	}
	q.Body, leg.Body = leg.Body, nil
	q.stream, q.Connected = stream, q.isConnected
	a, err := c.do(ctx, q)
	if err != nil {
		kind := Broken
		if !q.connected.Load() {
			kind = Dial
		} else if ctx.Err() == nil {
			// An engine that restarts breaks all its connections. The next leg must not get another one whose end was
			// not noticed yet.
			c.http.CloseIdle(q.Scheme, q.Authority)
		}
		return nil, leg.failure(ctx, kind, wireError(kind, err))
	}
	if err := leg.usable(ctx, a); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

var errNotHTTP = errors.New("the answer breaks HTTP")

// wireError returns an error that names only how the connection failed, or what package http1 says of the answer.
// Others, such as those of crypto/tls, may quote the answer, and answers don't belong in logs.
func wireError(kind Kind, err error) error {
	if kind == Dial || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return err
	}
	if _, ok := errors.AsType[http1.ProtocolError](err); ok {
		return err
	}
	return errNotHTTP
}

// usable returns an error for every answer that is not a plain 200.
func (l Leg) usable(ctx context.Context, a *http1.Response) error {
	if a.Status != http.StatusOK {
		e := l.failure(ctx, Status, nil)
		e.Status = a.Status
		e.RetryAfter = a.RetryAfter
		body, err := ReadAll(a, maxErrorBody)
		if err == nil {
			e.Fault = ReadFault(body)
		}
		return e
	}
	if media := mediaType(a.ContentType); media != "application/json" && media != "text/event-stream" {
		return l.failure(ctx, Garbage, errors.New("content type is neither JSON nor an event stream"))
	}
	// Nothing here decompresses, and the client was promised no coding.
	if coding := a.ContentEncoding; coding != "" && coding != "identity" {
		return l.failure(ctx, Garbage, errors.New("content is coded"))
	}
	return nil
}

// mediaType parses a Content-Type; it returns "" if that can't be parsed. Nearly all engines write one of three, which
// are compared first.
func mediaType(contentType string) string {
	switch contentType {
	case "application/json", "text/event-stream":
		return contentType
	case "text/event-stream; charset=utf-8":
		return "text/event-stream"
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return media
}

// failure returns the error of a leg. If one of our time limits or the client ended the leg, it says so instead of
// blaming the connection.
func (l Leg) failure(ctx context.Context, kind Kind, err error) *LegError {
	if ctx.Err() == nil {
		return l.failed(kind, err)
	}
	e := l.failed(kind, context.Cause(ctx))
	if IsTimeout(e.Err) {
		e.Kind = Timeout
	} else {
		e.Kind = Gone
	}
	return e
}

// failed returns the error of a leg whose context does not matter.
func (l Leg) failed(kind Kind, err error) *LegError {
	return &LegError{Role: l.Instance.Role, Instance: l.Instance.Name, Kind: kind, Sent: kind != Dial, Forwarded: l.Authorization != "", Err: err}
}
