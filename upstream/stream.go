package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"carryover/upstream/http1"
)

// Stream is the answer of a decode leg. Two time limits bound its reads, and it knows the age of the bytes that it
// returns. There is no goroutine per read. One goroutine may read; Close ends everything.
type Stream struct {
	contentType string
	body        io.ReadCloser // nil until headers have arrived

	limits  legLimits
	cause   func() error // why the leg has ended, nil while it runs
	unwatch func() bool  // stops watching the client's context

	conn      *conn // serves the leg; nil before, and when the answer has been read
	freshAsOf time.Time
	total     int64 // bytes read
}

// maxStream bounds an answer of unknown length, so that one that never ends is recognised. A million tokens with their log probabilities
// fit.
const maxStream = 256 << 20

// connected is called before the leg is written.
func (s *Stream) connected(serving net.Conn) {
	switch serving := serving.(type) {
	case *conn:
		s.conn = serving
	case *secured:
		s.conn = serving.below.conn
	}
	s.conn.age.begin(s.freshAsOf)
}

// attach gives the stream its body, once headers have arrived. The first-byte limit
// stays armed until the first read returns.
func (s *Stream) attach(contentType string, body io.ReadCloser) {
	if s.contentType, s.body = contentType, body; s.Left() == 0 {
		s.conn = nil // it may serve another leg
	}
}

// ContentType returns the header as the engine sent it.
func (s *Stream) ContentType() string { return s.contentType }

// MediaType returns the media type of the answer in lower case without parameters, "" if the header can't be parsed.
func (s *Stream) MediaType() string { return mediaType(s.contentType) }

// Read implements io.Reader. After a limit, or after the end of the client's context, the error is that cause; an
// answer of unknown length of more than maxStream bytes is ErrStreamTooLong.
func (s *Stream) Read(p []byte) (int, error) {
	s.limits.waits()
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

// Left returns how many bytes the answer has left, -1 if that is not known.
func (s *Stream) Left() int64 {
	if body, ok := s.body.(*http1.Response); ok {
		return body.Left()
	}
	return -1
}

// FreshAsOf returns a moment at which nothing had arrived yet of what the last read returned, the leg's start if nothing
// was read ([age]). Whatever shows that decode has finished arrived later.
func (s *Stream) FreshAsOf() time.Time { return s.freshAsOf }

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
