package upstream

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// Stream reads a decode answer under two time limits, and knows when the reader
// was last caught up with the engine. One timer is reset per read; there is no
// goroutine per read.
type Stream struct {
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	timer  *time.Timer
	cause  func() error
	idle   time.Duration

	caughtUp  time.Time
	total     int64                 // bytes read
	answered  atomic.Bool           // a first read has returned
	abandoned atomic.Pointer[error] // cause with which to end after the first read
	spared    atomic.Bool           // the answer is read to its end whoever has gone
}

// waited is how long a read must take to count as one that waited for the engine.
// A shorter read found data that was already there, so the engine may have
// finished earlier than the read suggests. 10 ms is far above the cost of a read
// from the socket buffer on a busy machine, and below any engine's inter-token
// latency at which the difference would matter against a TTL of minutes.
const waited = 10 * time.Millisecond

// maxStream is how much an engine may send for one answer before it is taken for
// one that never ends: a million tokens with their log probabilities fit.
const maxStream = 256 << 20

// Guard arms the first-byte limit of a decode leg before it is sent. The returned
// context ends with ErrFirstByteTimeout or ErrIdleTimeout as its cause.
func Guard(ctx context.Context, firstByte time.Duration) (context.Context, *Stream) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Stream{cancel: cancel, caughtUp: time.Now()}
	s.cause = func() error { return context.Cause(ctx) }
	s.timer = time.AfterFunc(firstByte, func() {
		switch cause := s.abandoned.Load(); {
		case cause != nil:
			cancel(*cause)
		case s.answered.Load():
			cancel(ErrIdleTimeout)
		default:
			cancel(ErrFirstByteTimeout)
		}
	})
	return ctx, s
}

// Attach gives the stream its body, once headers have arrived. idle is the limit
// between two reads from then on; the first-byte limit stays armed until the
// first read returns.
func (s *Stream) Attach(body io.ReadCloser, idle time.Duration) {
	s.body, s.idle, s.caughtUp = body, idle, time.Now()
}

// Read implements io.Reader. After one of the limits, or after Abandon, the
// error is that cause.
func (s *Stream) Read(p []byte) (int, error) {
	began := time.Now()
	if s.answered.Load() && s.abandoned.Load() == nil {
		// Only a read that waits can be idle; a client that is slow to take what
		// was read has a limit of its own.
		s.timer.Reset(s.idle)
	}
	n, err := s.body.Read(p)
	if s.total += int64(n); s.total > maxStream {
		s.cancel(ErrStreamTooLong)
		return n, ErrStreamTooLong
	}
	if now := time.Now(); now.Sub(began) >= waited {
		// The engine sent this at some moment of the wait; its start is the
		// only one of which we know that we had everything before it.
		s.caughtUp = began
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := s.cause(); cause != nil {
			err = cause
		}
		return n, err
	}
	cause := s.abandoned.Load()
	if !s.answered.Swap(true) && cause != nil && !s.spared.Load() {
		s.cancel(*cause)
		return n, *cause
	}
	if cause == nil {
		s.timer.Stop()
	}
	return n, err
}

// CaughtUp returns the last moment at which the reader had everything that decode
// had sent: the start of the last read that waited. A ticket's life counts from
// here, because decode starts its TTL when it finishes, which a slow client can
// make us notice minutes later.
func (s *Stream) CaughtUp() time.Time { return s.caughtUp }

// Abandon ends the leg with a cause because its client has gone: at once if
// decode has begun to answer, else when it does, or after limit. An answer that is
// spared gets all of the limit.
func (s *Stream) Abandon(cause error, limit time.Duration) {
	s.abandoned.Store(&cause)
	s.timer.Reset(limit)
	if s.answered.Load() && !s.spared.Load() {
		s.cancel(cause)
	}
}

// Spare has the answer read to its end although the client may go, or has gone: a
// whole answer is finished when its headers come, and names blocks that stay
// pinned unless they are kept or released. Call it before the first Read.
func (s *Stream) Spare() { s.spared.Store(true) }

// Close stops the limits, closes the body and ends the leg.
func (s *Stream) Close() error {
	s.timer.Stop()
	var err error
	if s.body != nil {
		err = s.body.Close()
	}
	s.cancel(context.Canceled)
	return err
}
