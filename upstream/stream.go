package upstream

import (
	"context"
	"errors"
	"io"
	"net"
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

	arrival   arrival
	conn      *conn                 // that serves the leg, nil if it is not watched
	ahead     teller                // is the body, nil if it does not tell
	drained   bool                  // all that the next read returns came after the last one
	total     int64                 // bytes read
	answered  atomic.Bool           // a first read has returned
	abandoned atomic.Pointer[error] // cause with which to end after the first read
	spared    atomic.Bool           // the answer is read to its end though the client has gone

	began   time.Time
	waiting atomic.Int64 // when the read that is under way began, in nanoseconds since began; 0 if none is
	idle    time.Duration
	arming  sync.Mutex // guards the rest
	timer   *time.Timer
	until   time.Time // the end of a leg that is abandoned
	closed  bool      // the timer is not needed any more
}

// teller is a body that tells whether part of what is read next existed before.
type teller interface{ Ahead() bool }

// maxStream is how much an engine may send for one answer before it is taken for
// one that never ends: a million tokens with their log probabilities fit.
const maxStream = 256 << 20

// connected is called before the leg is written.
func (s *Stream) connected(serving net.Conn) {
	s.arrival.begin(time.Now())
	if s.conn = watched(serving); s.conn != nil {
		s.conn.serve(&s.arrival)
	}
}

// disconnected is called at the end of the answer, before anything else is read from
// the connection, which serves other requests then.
func (s *Stream) disconnected() {
	if s.conn != nil {
		s.conn.leave(&s.arrival)
	}
}

// attach gives the stream its body, once headers have arrived. The first-byte limit
// stays armed until the first read returns.
func (s *Stream) attach(contentType string, body io.ReadCloser) {
	s.contentType, s.body = contentType, body
	s.ahead, _ = body.(teller)
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
	s.waits()
	s.arrival.next(s.drained)
	n, err := s.body.Read(p)
	s.waiting.Store(0)
	if s.ahead != nil {
		s.drained = !s.ahead.Ahead()
	} else {
		// net/http fills p as far as it can without waiting; a read that does not fill
		// it has left no byte of the answer behind.
		s.drained = n < len(p)
	}
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
	if first {
		s.begins()
	}
	return n, err
}

// left returns how much the body has left, -1 if it does not tell.
func (s *Stream) left() int64 { return left(s.body) }

// FreshAsOf returns a moment at which nothing had arrived yet of what the last read
// returned, or of the headers if nothing has been read; without a pause, of this
// process or of the reader, the last such moment to within a second. What shows that
// decode has finished therefore came later, and a ticket's life counts from here:
// decode incarnations its TTL when it finishes, which we may notice minutes later.
func (s *Stream) FreshAsOf() time.Time { return s.arrival.last() }

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
