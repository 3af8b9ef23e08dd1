package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// Stream is the answer of a decode leg. Two time limits bound its reads, and it knows the age of the bytes that it
// returns. There is no goroutine per read. One goroutine may read; Close ends everything.
type Stream struct {
	contentType string
	body        io.ReadCloser // nil until headers have arrived

	limits  legLimits
	cause   func() error // why the leg has ended, nil while it runs
	unwatch func() bool  // stops watching the client's context

	arrival arrival
	conn    *conn  // the connection that serves the leg, nil if it is not watched
	ahead   teller // the body, nil if it can't tell whether it has buffered bytes
	drained bool   // all that the next read returns arrived after the last read
	total   int64  // bytes read
}

// teller is a body that tells whether part of the next read was buffered before.
type teller interface{ Ahead() bool }

// maxStream bounds an answer, so that one that never ends is recognised. A million tokens with their log probabilities
// fit.
const maxStream = 256 << 20

// connected is called before the leg is written.
func (s *Stream) connected(serving net.Conn) {
	s.arrival.begin(time.Now())
	if s.conn = watched(serving); s.conn != nil {
		s.conn.serve(&s.arrival)
	}
}

// disconnected is called at the end of the answer, before anything else is read from the connection, which then serves
// other requests.
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

// MediaType returns the media type of the answer in lower case without parameters, "" if the header can't be parsed.
func (s *Stream) MediaType() string { return mediaType(s.contentType) }

// Read implements io.Reader. After a limit, or after the end of the client's context, the error is that cause; an
// answer of more than maxStream bytes is ErrStreamTooLong.
func (s *Stream) Read(p []byte) (int, error) {
	s.limits.waits()
	s.arrival.next(s.drained)
	n, err := s.body.Read(p)
	s.limits.waiting.Store(0)
	if s.ahead != nil {
		s.drained = !s.ahead.Ahead()
	} else {
		// net/http fills p as far as it can without waiting, so a read that does not fill p has left nothing of the
		// answer behind.
		s.drained = n < len(p)
	}
	if s.total += int64(n); s.total > maxStream {
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

// left returns how many bytes the body has left, -1 if that is not known.
func (s *Stream) left() int64 { return left(s.body) }

// FreshAsOf returns a moment at which nothing had arrived yet of what the last read returned, or of the headers if
// nothing was read. If neither this process nor the reader paused, it is the last such moment to within a second.
// Whatever shows that decode has finished arrived later. A ticket's life counts from this moment, because decode's TTL
// begins when decode finishes, which we may notice minutes later.
func (s *Stream) FreshAsOf() time.Time { return s.arrival.last() }

// Spare makes the answer be read to its end although the client may leave, or has left, for as long as Limits.Gone
// allows. A whole answer is finished when its headers arrive, and names blocks that stay pinned unless they are kept
// or released. Call it before the first Read.
func (s *Stream) Spare() { s.limits.spared.Store(true) }

// Close stops the limits, closes the body and ends the leg.
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
