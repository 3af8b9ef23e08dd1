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

// Stream is the answer of a decode leg. It is read under two time limits, and knows of
// what age the bytes are that it returns. One timer is reset per read; there is no
// goroutine per read. One goroutine reads; Close ends it all.
type Stream struct {
	contentType string
	body        io.ReadCloser // nil until headers have arrived

	cancel  context.CancelCauseFunc
	cause   func() error // with which the leg has ended, nil while it runs
	unwatch func() bool  // ends the watch on the client's context
	timer   *time.Timer
	idle    time.Duration

	arrival   arrival
	conn      *conn                 // that serves the leg, nil if it is not watched
	drained   bool                  // the last read left nothing in net/http's buffers
	total     int64                 // bytes read
	answered  atomic.Bool           // a first read has returned
	abandoned atomic.Pointer[error] // cause with which to end after the first read
	arming    sync.Mutex            // guards closed, and the timer of a leg that is being abandoned
	closed    bool                  // the timer is not needed any more
	spared    atomic.Bool           // the answer is read to its end though the client has gone
}

// maxStream is how much an engine may send for one answer before it is taken for
// one that never ends: a million tokens with their log probabilities fit.
const maxStream = 256 << 20

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

// attach gives the stream its body, once headers have arrived. The first-byte limit
// stays armed until the first read returns.
func (s *Stream) attach(contentType string, body io.ReadCloser) {
	s.contentType, s.body = contentType, body
}

// ContentType returns the header as the engine sent it.
func (s *Stream) ContentType() string { return s.contentType }

// MediaType returns the media type of the answer in lower case and without its
// parameters, "" if the header can't be read.
func (s *Stream) MediaType() string { return mediaType(s.contentType) }

// Read implements io.Reader. After one of the limits, or after the end of the
// client's context, the error is that cause; more bytes than any answer has are
// ErrStreamTooLong.
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
	first := !s.answered.Swap(true) // before the look at abandoned: abandon looks in the other order
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

// abandon ends the leg with a cause because its client has gone: at once if
// decode has begun to answer, else when it does, or after limit. An answer that is
// spared gets all of the limit.
func (s *Stream) abandon(cause error, limit time.Duration) {
	s.arming.Lock()
	s.abandoned.Store(&cause)
	if !s.closed {
		s.timer.Reset(limit)
	}
	s.arming.Unlock()
	if s.answered.Load() && !s.spared.Load() {
		s.cancel(cause)
	}
}

// Spare has the answer read to its end although the client may go, or has gone, for
// as long as Limits.Gone allows: a whole answer is finished when its headers come, and
// names blocks that stay pinned unless they are kept or released. Call it before the
// first Read.
func (s *Stream) Spare() { s.spared.Store(true) }

// Close stops the limits, closes the body and ends the leg.
func (s *Stream) Close() error {
	s.unwatch()
	s.arming.Lock()
	s.closed = true
	s.timer.Stop()
	s.arming.Unlock()
	var err error
	if s.body != nil {
		err = s.body.Close()
	}
	s.cancel(context.Canceled)
	return err
}
