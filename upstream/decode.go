package upstream

import (
	"context"
	"time"
)

// Limits bound what a decode leg may wait for.
type Limits struct {
	// FirstByte bounds the wait for the first byte of the answer's body, counted
	// from the start of the leg.
	FirstByte time.Duration
	// Idle bounds each later read, while it waits for the engine.
	Idle time.Duration
	// Gone returns how long decode may still take to begin its answer after the leg's context has ended with that
	// cause. It is called at most once, on its own goroutine. nil ends the leg with its context.
	Gone func(cause error) time.Duration
}

// Decode runs a decode leg and returns when its headers have arrived; the caller closes the stream. It returns only
// answers with status 200, of JSON or events and without a content coding. Errors are *LegError; if a limit ended the
// leg, the error's cause is that limit.
//
// ctx is the client's, and its end does not end the leg at once. Once decode has the hand-over it must reach its first
// event: if a request is aborted before it was scheduled, prefill's blocks stay pinned until their lease ends, and
// some connectors break (vLLM #50425). The leg ends then with the first byte of the answer, or after limits.Gone.
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

// guard starts the limits of a decode leg before it is sent. The returned context is the leg's: it has the values of
// the client's context, and its cause is the limit that passed or the client's cause.
func guard(client context.Context, limits Limits) (context.Context, *Stream) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	began := time.Now()
	s := &Stream{limits: legLimits{cancel: cancel, idle: limits.Idle, began: began}, freshAsOf: began}
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
