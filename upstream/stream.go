package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"carryover/upstream/http1"
)

// Limits bound the waits of a decode leg.
type Limits struct {
	// FirstByte bounds the wait for the first byte of the answer's body, from the start of the leg.
	FirstByte time.Duration
	// Whole says that the answer comes in one piece, when the engine has finished it.
	Whole bool
	// Idle bounds each later read, while it waits for the engine.
	Idle time.Duration
	// Gone returns how long decode may still take to begin its answer after the leg's context has ended with that cause. It is called at
	// most once, on its own goroutine. nil ends the leg with its context.
	Gone func(cause error) time.Duration
}

// Decode runs a decode leg and returns when its headers have arrived; the caller closes the stream. It returns only answers with status
// 200, of JSON or events and without a content coding. Errors are *LegError; if a limit ended the leg, the error's cause is that limit.
//
// ctx is the client's, and its end does not end the leg at once. With the hand-over, decode must reach its first event: if a request is
// aborted before it was scheduled, prefill's blocks stay pinned until their lease ends, and some connectors break (vLLM #50425). The leg
// then ends with the first byte of the answer, or after limits.Gone.
func (c *Client) Decode(ctx context.Context, leg Leg, limits Limits) (*Stream, error) {
	if ctx.Err() != nil && limits.Gone == nil {
		// AfterFunc in guard would notice it too late to send nothing.
		return nil, leg.failure(ctx, Dial, ctx.Err())
	}
	guarded, stream := guard(ctx, limits)
	response, err := c.send(guarded, &leg, stream)
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	stream.attach(response.ContentType, response)
	return stream, nil
}

// guard starts the limits of a decode leg before it is sent. The returned context has the values of the client's, and its cause is the
// limit that passed or the client's cause.
func guard(client context.Context, limits Limits) (context.Context, *Stream) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	began := time.Now()
	s := &Stream{limits: legLimits{cancel: cancel, whole: limits.Whole, idle: limits.Idle, began: began}, freshAsOf: began}
	s.cause = func() error { return context.Cause(ctx) }
	s.limits.start(limits.FirstByte)
	// The function must not refer to the leg, whose body would then live as long as the stream.
	s.unwatch = context.AfterFunc(client, func() {
		cause := context.Cause(client)
		if limits.Gone == nil {
			cancel(cause)
			return
		}
		s.limits.abandon(cause, limits.Gone(cause))
	})
	return ctx, s
}

// Stream is the answer of a decode leg. Two time limits bound its reads, and it knows the age of the bytes that it returns. It needs no
// goroutine per read. One goroutine may read; Close ends everything.
type Stream struct {
	ContentType string
	body        io.ReadCloser // nil until headers have arrived

	limits  legLimits
	cause   func() error // why the leg has ended, nil while it runs
	unwatch func() bool

	conn      *conn // serves the leg; nil before, and when the answer has been read
	freshAsOf time.Time
	total     int64 // bytes read
}

// maxStream bounds an answer of unknown length. A million tokens with their log probabilities fit.
const maxStream = 256 << 20

func (s *Stream) connected(serving net.Conn) {
	switch serving := serving.(type) {
	case *conn:
		s.conn = serving
	case *secured:
		s.conn = serving.below.conn
	}
	s.conn.age.begin(s.freshAsOf)
}

// attach sets the body, once headers have arrived. The first-byte limit stays armed until the first read returns.
func (s *Stream) attach(contentType string, body io.ReadCloser) {
	if s.ContentType, s.body = contentType, body; s.Left() == 0 {
		s.conn = nil // it may serve another leg
	}
}

// MediaType returns the answer's media type in lower case without parameters, "" if the header can't be parsed.
func (s *Stream) MediaType() string { return mediaType(s.ContentType) }

// Read implements io.Reader. After a limit, or after the end of the client's context, the error is that cause; an answer of unknown
// length of more than maxStream bytes is ErrStreamTooLong.
func (s *Stream) Read(p []byte) (int, error) {
	s.limits.waiting.Store(max(1, int64(time.Since(s.limits.began)))) // 0 is for no read
	if s.conn != nil {
		s.freshAsOf = s.conn.age.before
	}
	n, err := s.body.Read(p)
	s.limits.waiting.Store(0)
	if err != nil {
		s.conn = nil // it may serve another leg
	}
	if s.total += int64(n); s.total > maxStream && s.Left() < 0 {
		s.limits.cancel(ErrStreamTooLong)
		return n, ErrStreamTooLong
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := s.cause(); cause != nil {
			err = cause
		}
		return n, err
	}
	first := !s.limits.answered.Swap(true) // before abandoned is read: abandon reads the two in the other order
	if cause := s.limits.abandoned.Load(); first && cause != nil && !s.limits.spared.Load() {
		s.limits.cancel(*cause)
		return n, *cause
	}
	if first {
		s.limits.begins()
	}
	return n, err
}

// Left returns how many bytes of the answer are left, -1 if not known.
func (s *Stream) Left() int64 {
	if body, ok := s.body.(*http1.Response); ok {
		return body.Left()
	}
	return -1
}

// FreshAsOf returns a moment at which nothing of the last read's bytes had arrived, the leg's start if nothing was read ([age]). Any
// byte that shows decode's end arrived later.
func (s *Stream) FreshAsOf() time.Time { return s.freshAsOf }

// Spare makes the answer be read to its end although the client leaves, for as long as Limits.Gone allows. A whole answer is finished
// when its headers arrive, and names blocks that stay pinned unless they are kept or released. Call it before the first Read.
func (s *Stream) Spare() { s.limits.spared.Store(true) }

// Close ends the leg and its limits.
func (s *Stream) Close() error {
	s.unwatch()
	s.limits.close()
	var err error
	if s.body != nil {
		err = s.body.Close()
	}
	s.limits.cancel(context.Canceled)
	return err
}

// heldBack is the longest time between two reads that left nothing behind for which the second is evidence at once. In a longer one the
// process or the machine may have stood still, or a slow client may have stopped the relay. What the engine could not send meanwhile
// comes as late again, because TCP's retransmission timer doubles (RFC 6298, 5.5). Up to this bound the error stays below TicketSlack of
// package pins.
const heldBack = 2 * time.Second

// age finds a moment at which nothing of a connection's next reads had arrived. A ticket's time counts from it: decode's own time starts
// when decode finishes, which the proxy may notice minutes later.
//
// The evidence is a read that returned less than it could: it took all that had arrived when it began, so later reads return later
// bytes, however long the process stands still between two steps. The duration of a read says nothing: on a machine that is short of
// CPU, a read that finds its bytes is slow too. The read before the last one counts, because crypto/tls and package http1 may still hold
// bytes of the last one. So an answer seems older than it is by the time between three reads. The time that bytes travel does not show;
// tickets end before their blocks by a margin that covers it.
type age struct {
	before  time.Time // nothing of the next returned bytes had arrived then
	emptied time.Time // nothing of the next read had arrived then
	last    time.Time // when the last read began that left nothing behind
	doubted time.Time // reads from before then are no evidence
}

func (a *age) begin(leg time.Time) { *a = age{before: leg, emptied: leg, last: leg} }

// read notes when a read began, and whether it returned less than it could.
func (a *age) read(began time.Time, less bool) {
	a.before = a.emptied
	if !less {
		return
	}
	if gap := Elapsed(a.last, began); gap > heldBack {
		a.doubted = began.Add(gap)
	}
	a.last = began
	if !began.Before(a.doubted) {
		a.emptied = began
	}
}

// Elapsed returns how long before now a moment was, negative for a future one, by the clock that says longer: CLOCK_MONOTONIC stands
// still while a machine is suspended, and the wall clock can be set back.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
