package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http/httputil"
)

// Bounds of what either side of a connection believes.
const (
	wireBuffer = 4 << 10  // what a connection reads at once; its head must fit
	maxBody    = 64 << 20 // of a message
)

var (
	errHead    = errors.New("the head of the message breaks HTTP, or is larger than 4 KB")
	errFraming = errors.New("the body of the message breaks HTTP")
)

// Reader reads HTTP/1.1 messages off a connection, with what the benchmark tool needs of HTTP and no more. A head takes no memory.
type Reader struct {
	in     *bufio.Reader
	left   int       // bytes of the body that are to come, where its length is known
	chunks io.Reader // a chunked body, nil for any other
	part   [1 << 10]byte
}

// NewReader returns a reader of a connection.
func NewReader(from io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(from, wireBuffer)} }

// Reset begins to read another connection, with the same memory.
func (w *Reader) Reset(from io.Reader) { w.in.Reset(from) }

// Head is the beginning of a message. What it holds is valid until the next read.
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

// parse reads a head, whose lines all end with CRLF.
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

// Piece returns what has arrived of the body, at least a byte, and waits for it if there is none. It is valid until the next read.
// The error is io.EOF behind the body's end.
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
		return w.part[:n], nil // an error comes again
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

// Body appends the whole body to dst. What is not in the buffer yet of a body whose length is known goes past it.
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

// unexpected makes an end of the connection inside of a message one.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
