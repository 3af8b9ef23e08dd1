package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
	"carryover/upstream/http1"
)

const maxErrorBody = 64 << 10

// Leg is one upstream call of a turn.
type Leg struct {
	Instance *Instance
	API      body.API
	// Body is the complete JSON body. The leg drops it when it is written. The texts that it refers to must not change
	// before the leg has ended.
	Body rawjson.Pieces
	// RequestID becomes X-Request-Id; vLLM builds the response id and remote_request_id from it.
	RequestID string
	// Rank is the data-parallel rank that the leg names; "" uses the instance's.
	Rank          string
	Authorization string
	// Trace becomes traceparent and tracestate; nothing if it is invalid.
	Trace trace.SpanContext
	// AnswerIDs reports whether an answer with this id can't belong to the leg with this RequestID. Prefill and HandBack then fail with ErrForeign. nil
	// checks nothing.
	AnswerIDs interface {
		Foreign(requestID, id string) bool
	}
}

// send returns the answer of a leg if it is usable, and drops the leg's body. stream learns which connection serves
// the leg; it may be nil.
func (c *Client) send(ctx context.Context, leg *Leg, stream *Stream) (*http1.Response, error) {
	q := c.request(http.MethodPost, leg.Instance.BaseURL, leg.API.Path(), leg.Authorization)
	q.add("Content-Type", "application/json")
	if leg.RequestID != "" {
		q.add("X-Request-Id", leg.RequestID)
	}
	if rank := cmp.Or(leg.Rank, leg.Instance.rank()); rank != "" {
		q.add(rankHeader, rank)
	}
	if leg.Trace.IsValid() {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(ctx, leg.Trace), carrier)
		q.add("Traceparent", carrier["traceparent"])
		if state := carrier["tracestate"]; state != "" {
			q.add("Tracestate", state)
		}
	}
	q.Body, leg.Body = leg.Body, nil
	q.Connected = func(serving net.Conn) {
		if q.connected = true; stream != nil {
			stream.connected(serving)
		}
	}
	a, err := c.do(ctx, q)
	if err != nil {
		kind := Broken
		if !q.connected {
			kind = Dial
		} else if ctx.Err() == nil {
			// An engine that restarts breaks all its connections. The next leg must not get one whose end was not
			// noticed yet.
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

// wireError names only how the connection failed, or the message of package http1. Other errors, such as crypto/tls's, may quote the answer, and
// answers don't belong in logs.
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

func (l Leg) usable(ctx context.Context, a *http1.Response) error {
	if a.Status != http.StatusOK {
		e := l.failure(ctx, Status, nil)
		e.Status = a.Status
		e.RetryAfter = a.RetryAfter
		body, err := ReadWithin(a, maxErrorBody, nil, nil)
		if err == nil {
			e.Fault = ReadFault(body)
		}
		return e
	}
	if media := mediaType(a.ContentType); media != "application/json" && media != "text/event-stream" {
		return l.failure(ctx, Garbage, errors.New("content type is neither JSON nor an event stream"))
	}
	// Nothing here decompresses.
	if coding := a.ContentEncoding; coding != "" && coding != "identity" {
		return l.failure(ctx, Garbage, errors.New("content has a coding"))
	}
	return nil
}

// mediaType returns "" if a Content-Type can't be parsed. Nearly all engines write one of three, which are compared
// first.
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

// failure returns the error of a leg. If a time limit or the client ended the leg, the error says so and does not
// blame the connection.
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

func (l Leg) failed(kind Kind, err error) *LegError {
	return &LegError{Role: l.Instance.Role, Instance: l.Instance.Name, Kind: kind, Sent: kind != Dial, Forwarded: l.Authorization != "", Err: err}
}

// Only a read that waits for the engine can be idle; a slow client has a limit of its own. To reset and stop a timer
// costs 0.15 µs per read, to store a time 0.04. So a stream's timer fires, and is then set for as long as the current
// read may still wait.

// legLimits ends a decode leg that waits too long, or whose client has gone. One timer serves all reads.
type legLimits struct {
	cancel    context.CancelCauseFunc
	whole     bool // the answer comes in one piece
	answered  atomic.Bool
	abandoned atomic.Pointer[error] // ends the leg after the first read
	spared    atomic.Bool           // the answer is read to its end although the client has gone

	began   time.Time
	waiting atomic.Int64 // when the current read began, in nanoseconds since began; 0 for none
	idle    time.Duration
	arming  sync.Mutex // guards the rest
	timer   *time.Timer
	until   time.Time // when an abandoned leg ends
	closed  bool
}

func (l *legLimits) start(firstByte time.Duration) {
	l.arming.Lock() // until the timer is set, which may fire at once
	defer l.arming.Unlock()
	l.timer = time.AfterFunc(firstByte, l.due)
}

func (l *legLimits) begins() {
	l.arming.Lock()
	defer l.arming.Unlock()
	if l.abandoned.Load() == nil && !l.closed {
		l.timer.Reset(l.idle)
	}
}

func (l *legLimits) close() {
	l.arming.Lock()
	defer l.arming.Unlock()
	l.closed = true
	l.timer.Stop()
}

// due ends the leg if a limit has passed, and else sets the timer for the next one.
func (l *legLimits) due() {
	l.arming.Lock()
	defer l.arming.Unlock()
	switch cause := l.abandoned.Load(); {
	case l.closed:
	case cause != nil:
		if left := time.Until(l.until); left > 0 { // the client left at this moment
			l.timer.Reset(left)
			return
		}
		l.cancel(*cause)
	case !l.answered.Load():
		if l.whole {
			l.cancel(ErrAnswerTimeout)
		} else {
			l.cancel(ErrFirstByteTimeout)
		}
	default:
		left := l.idle
		if since := l.waiting.Load(); since > 0 {
			left -= time.Since(l.began) - time.Duration(since)
		}
		if left <= 0 {
			l.cancel(ErrIdleTimeout)
			return
		}
		l.timer.Reset(left)
	}
}

// abandon ends the leg of a client that has gone: at once if decode has begun to answer, else when decode begins, or
// after limit. A spared answer gets all of limit.
func (l *legLimits) abandon(cause error, limit time.Duration) {
	l.arming.Lock()
	l.abandoned.Store(&cause)
	l.until = time.Now().Add(limit)
	if !l.closed {
		l.timer.Reset(limit)
	}
	l.arming.Unlock()
	if l.answered.Load() && !l.spared.Load() {
		l.cancel(cause)
	}
}
