package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http/httputil"
)

// Limits for messages of a peer.
const (
	wireBuffer = 4 << 10  // most bytes of one read; a head must fit
	maxBody    = 64 << 20 // of a message
)

var (
	errHead    = errors.New("the head of the message breaks HTTP, or is larger than 4 KB")
	errFraming = errors.New("the body of the message breaks HTTP")
)

// Reader reads HTTP/1.1 messages from a connection, as far as the benchmark tool needs. Heads need no allocation.
type Reader struct {
	in     *bufio.Reader
	left   int       // bytes of the body that are still to come, if its length is known
	chunks io.Reader // a chunked body, nil for any other
	part   [1 << 10]byte
}

// NewReader returns a reader for a connection.
func NewReader(from io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(from, wireBuffer)} }

// Reset changes to another connection and keeps the memory.
func (w *Reader) Reset(from io.Reader) { w.in.Reset(from) }

// Head is the first line and the headers of a message. Its slices are valid until the next read.
type Head struct {
	Line      []byte // the first line, without its end
	RequestID []byte
	Status    int
	Closes    bool
}

// Head reads the next message up to its body. The error is io.EOF if the connection ended before it began.
func (w *Reader) Head() (Head, error) {
	for n := 1; ; n = w.in.Buffered() + 1 {
		_, err := w.in.Peek(n)
		text, _ := w.in.Peek(w.in.Buffered())
		if end := bytes.Index(text, []byte("\r\n\r\n")); end >= 0 {
			_, _ = w.in.Discard(end + 4) // it is in the buffer
			return w.parse(text[:end+2])
		}
		if err != nil && len(text) > 0 {
			return Head{}, errors.Join(errHead, unexpected(err))
		}
		if err != nil {
			return Head{}, err
		}
	}
}

// parse reads a head whose lines all end with CRLF.
func (w *Reader) parse(text []byte) (h Head, err error) {
	line, rest, _ := bytes.Cut(text, []byte("\r\n"))
	h.Line = line
	if bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		if h.Status = Number(line[9:min(12, len(line))]); h.Status < 100 {
			return h, errHead
		}
	} else if !bytes.HasSuffix(line, []byte(" HTTP/1.1")) {
		return h, errHead
	}
	w.left, w.chunks = 0, nil
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found {
			return h, errHead
		}
		value = bytes.TrimSpace(value)
		switch {
		case isName(name, "content-length"):
			if w.left = Number(value); w.left < 0 || w.left > maxBody {
				return h, errFraming
			}
		case isName(name, "transfer-encoding"):
			if !isName(value, "chunked") {
				return h, errFraming
			}
			w.chunks = httputil.NewChunkedReader(w.in)
		case isName(name, "x-request-id"):
			h.RequestID = value
		case isName(name, "connection"):
			h.Closes = isName(value, "close")
		}
	}
	return h, nil
}

func isName(name []byte, want string) bool {
	return len(name) == len(want) && bytes.EqualFold(name, []byte(want))
}

// Piece waits for bytes of the body and returns them, valid until the next read. After the body the error is io.EOF.
func (w *Reader) Piece() ([]byte, error) {
	if w.chunks == nil {
		n, err := w.in.Read(w.part[:min(w.left, len(w.part))])
		if w.left == 0 {
			return nil, io.EOF
		}
		w.left -= n
		return w.part[:n], unexpected(err)
	}
	n, err := w.chunks.Read(w.part[:])
	if n > 0 {
		return w.part[:n], nil // the next call returns the error again
	}
	for errors.Is(err, io.EOF) { // trailers
		line, failed := w.in.ReadSlice('\n')
		if failed != nil || !bytes.HasSuffix(line, []byte("\r\n")) {
			return nil, errors.Join(errFraming, unexpected(failed))
		}
		if len(line) == 2 {
			w.left, w.chunks = 0, nil
			return nil, io.EOF
		}
	}
	return nil, err
}

// Body appends the whole body to dst. If the length is known, bytes that are not yet in the buffer go directly into dst.
func (w *Reader) Body(dst []byte) ([]byte, error) {
	if w.chunks == nil {
		n, at := w.left, len(dst)
		w.left = 0
		if cap(dst)-at < n {
			dst = append(make([]byte, 0, at+n), dst...)
		}
		dst = dst[:at+n]
		_, err := io.ReadFull(w.in, dst[at:])
		return dst, unexpected(err)
	}
	for {
		part, err := w.Piece()
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		if dst = append(dst, part...); len(dst) > maxBody {
			return dst, errFraming
		}
	}
}

// unexpected turns io.EOF inside a message into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
