package upstream

import (
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// Stream reads a decode answer under two time limits, and knows of what age the
// bytes are that it returns. One timer is reset per read; there is no goroutine per
// read.
type Stream struct {
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	timer  *time.Timer
	cause  func() error
	idle   time.Duration

	arrival   arrival
	conn      *conn                 // that serves the leg, nil if it is not watched
	drained   bool                  // the last read left nothing in net/http's buffers
	total     int64                 // bytes read
	answered  atomic.Bool           // a first read has returned
	abandoned atomic.Pointer[error] // cause with which to end after the first read
	arming    sync.Mutex            // guards the timer of a leg that is being abandoned
	spared    atomic.Bool           // the answer is read to its end whoever has gone
}

// maxStream is how much an engine may send for one answer before it is taken for
// one that never ends: a million tokens with their log probabilities fit.
const maxStream = 256 << 20

// Guard arms the first-byte limit of a decode leg before it is sent. The returned
// context ends with ErrFirstByteTimeout or ErrIdleTimeout as its cause, and tells the
// stream which connection the leg is sent on.
func Guard(ctx context.Context, firstByte time.Duration) (context.Context, *Stream) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Stream{cancel: cancel}
	s.arrival.begin(time.Now())
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
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: s.connected, PutIdleConn: s.disconnected}), s
}

// connected is called before the leg is written.
func (s *Stream) connected(info httptrace.GotConnInfo) {
	s.arrival.begin(time.Now())
	if s.conn = watched(info.Conn); s.conn != nil {
		s.conn.serve(&s.arrival)
	}
}

// disconnected is called at the end of the answer, before anything else is read from
// the connection (net/http persistConn.readLoop), which serves other requests then.
func (s *Stream) disconnected(error) {
	if s.conn != nil {
		s.conn.leave(&s.arrival)
	}
}

// Attach gives the stream its body, once headers have arrived. idle is the limit
// between two reads from then on; the first-byte limit stays armed until the
// first read returns.
func (s *Stream) Attach(body io.ReadCloser, idle time.Duration) {
	s.body, s.idle = body, idle
}

// Read implements io.Reader. After one of the limits, or after Abandon, the
// error is that cause.
func (s *Stream) Read(p []byte) (int, error) {
	if s.answered.Load() {
		// Only a read that waits can be idle; a client that is slow to take what
		// was read has a limit of its own.
		s.arm(s.idle)
	}
	s.arrival.next(s.drained)
	n, err := s.body.Read(p)
	// net/http fills p as far as it can without waiting; a read that does not fill it
	// has left no byte of the answer behind.
	s.drained = n < len(p)
	if s.total += int64(n); s.total > maxStream {
		s.cancel(ErrStreamTooLong)
		return n, ErrStreamTooLong
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := s.cause(); cause != nil {
			err = cause
		}
		return n, err
	}
	first := !s.answered.Swap(true) // before the look at abandoned: Abandon looks in the other order
	if cause := s.abandoned.Load(); first && cause != nil && !s.spared.Load() {
		s.cancel(*cause)
		return n, *cause
	}
	s.arm(0)
	return n, err
}

// arm sets the limit of what comes next, 0 for none. A leg that is abandoned keeps
// the limit that it got then.
func (s *Stream) arm(limit time.Duration) {
	s.arming.Lock()
	defer s.arming.Unlock()
	switch {
	case s.abandoned.Load() != nil:
	case limit == 0:
		s.timer.Stop()
	default:
		s.timer.Reset(limit)
	}
}

// CaughtUp returns a moment at which nothing had arrived yet of what the last read
// returned, or of the headers if nothing has been read; without a pause, of this
// process or of the reader, the last such moment to within a second. What shows that
// decode has finished therefore came later, and a ticket's life counts from here:
// decode starts its TTL when it finishes, which we may notice minutes later.
func (s *Stream) CaughtUp() time.Time { return s.arrival.last() }

// Abandon ends the leg with a cause because its client has gone: at once if
// decode has begun to answer, else when it does, or after limit. An answer that is
// spared gets all of the limit.
func (s *Stream) Abandon(cause error, limit time.Duration) {
	s.arming.Lock()
	s.abandoned.Store(&cause)
	s.timer.Reset(limit)
	s.arming.Unlock()
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
