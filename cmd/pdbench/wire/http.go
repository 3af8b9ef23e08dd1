package wire

import (
	"bytes"
	"errors"
	"io"
	"strconv"
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

// Reader reads HTTP/1.1 messages off a connection, with what the benchmark tool needs of HTTP and no more. A head takes 0.5 µs and no memory.
type Reader struct {
	from       io.Reader
	buf        []byte
	start, end int // of what was read and is not used yet

	left    int // bytes of the body that are to come, of the piece for a chunked one
	chunked bool
	begun   bool // a chunk of a chunked body has been read
}

// NewReader returns a reader of a connection.
func NewReader(from io.Reader) *Reader { return &Reader{from: from, buf: make([]byte, wireBuffer)} }

// Reset begins to read another connection, with the same memory.
func (w *Reader) Reset(from io.Reader) { *w = Reader{from: from, buf: w.buf} }

// Head is the beginning of a message. What it holds is valid until the next read.
type Head struct {
	Line      []byte // the first line, without its end
	RequestID []byte
	Status    int
	Closes    bool
}

// Head reads the next message up to its body. The error is io.EOF if the connection ended before it began.
func (w *Reader) Head() (Head, error) {
	scanned := 0
	for {
		if end := bytes.Index(w.buf[w.start+scanned:w.end], []byte("\r\n\r\n")); end >= 0 {
			text := w.buf[w.start : w.start+scanned+end+2]
			w.start += scanned + end + 4
			return w.parse(text)
		}
		scanned = max(0, w.end-w.start-3)
		if err := w.fill(); err != nil {
			if errors.Is(err, io.EOF) && w.end > w.start {
				err = io.ErrUnexpectedEOF
			}
			return Head{}, err
		}
	}
}

// parse reads a head, whose lines all end with CRLF.
func (w *Reader) parse(text []byte) (h Head, err error) {
	line, rest, _ := bytes.Cut(text, []byte("\r\n"))
	h.Line = line
	if bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		if len(line) < len("HTTP/1.1 200") {
			return h, errHead
		}
		if h.Status, err = strconv.Atoi(string(line[9:12])); err != nil {
			return h, errHead
		}
	} else if !bytes.HasSuffix(line, []byte(" HTTP/1.1")) {
		return h, errHead
	}
	w.left, w.chunked, w.begun = 0, false, false
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found {
			return h, errHead
		}
		value = bytes.TrimSpace(value)
		switch {
		case isName(name, "content-length"):
			n, err := strconv.ParseUint(string(value), 10, 32)
			if err != nil || n > maxBody {
				return h, errFraming
			}
			w.left = int(n)
		case isName(name, "transfer-encoding"):
			if !bytes.EqualFold(value, []byte("chunked")) {
				return h, errFraming
			}
			w.chunked = true
		case isName(name, "x-request-id"):
			h.RequestID = value
		case isName(name, "connection"):
			h.Closes = bytes.EqualFold(value, []byte("close"))
		}
	}
	if w.chunked {
		w.left = 0
	}
	return h, nil
}

func isName(name []byte, want string) bool {
	return len(name) == len(want) && bytes.EqualFold(name, []byte(want))
}

// Piece returns what has arrived of the body, at least a byte, and waits for it if there is none. It is valid until the next read.
// The error is io.EOF behind the body's end.
func (w *Reader) Piece() ([]byte, error) {
	for w.left == 0 {
		if !w.chunked {
			return nil, io.EOF
		}
		if err := w.nextChunk(); err != nil {
			return nil, err
		}
	}
	if w.start == w.end {
		if err := w.fill(); err != nil {
			return nil, unexpected(err)
		}
	}
	n := min(w.left, w.end-w.start)
	part := w.buf[w.start : w.start+n]
	w.start += n
	w.left -= n
	return part, nil
}

// nextChunk reads the size of the next chunk. Behind the last one the body is over.
func (w *Reader) nextChunk() error {
	if w.begun {
		if end, err := w.textLine(); err != nil || len(end) > 0 {
			return framing(err)
		}
	}
	line, err := w.textLine()
	if err != nil {
		return framing(err)
	}
	size, _, _ := bytes.Cut(line, []byte(";"))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 32)
	if err != nil || n > maxBody {
		return errFraming
	}
	w.left, w.begun = int(n), true
	if n > 0 {
		return nil
	}
	for w.chunked = false; ; { // trailers
		line, err := w.textLine()
		if err != nil {
			return framing(err)
		}
		if len(line) == 0 {
			return io.EOF
		}
	}
}

// textLine reads a line that ends with CRLF, and returns it without.
func (w *Reader) textLine() ([]byte, error) {
	for {
		if end := bytes.IndexByte(w.buf[w.start:w.end], '\n'); end >= 0 {
			line := w.buf[w.start : w.start+end]
			w.start += end + 1
			if len(line) == 0 || line[len(line)-1] != '\r' {
				return nil, errFraming
			}
			return line[:len(line)-1], nil
		}
		if err := w.fill(); err != nil {
			return nil, unexpected(err)
		}
	}
}

// Body appends the whole body to dst. What is not in the buffer yet of a body whose length is known goes past it.
func (w *Reader) Body(dst []byte) ([]byte, error) {
	if !w.chunked && w.left > 0 {
		n, at := w.left, len(dst)
		if cap(dst)-at < n {
			dst = append(make([]byte, 0, at+n), dst...)
		}
		dst = dst[:at+n]
		have := copy(dst[at:], w.buf[w.start:w.end])
		w.start += have
		w.left = 0
		_, err := io.ReadFull(w.from, dst[at+have:])
		return dst, unexpected(err)
	}
	for {
		part, err := w.Piece()
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil || len(dst)+len(part) > maxBody {
			return dst, framing(err)
		}
		dst = append(dst, part...)
	}
}

// fill reads more into the buffer.
func (w *Reader) fill() error {
	if w.start == w.end {
		w.start, w.end = 0, 0
	} else if w.end == len(w.buf) {
		if w.start == 0 {
			return errHead
		}
		w.end = copy(w.buf, w.buf[w.start:w.end])
		w.start = 0
	}
	n, err := w.from.Read(w.buf[w.end:])
	w.end += n
	if n > 0 {
		return nil
	}
	return err
}

// unexpected makes an end of the connection inside of a message one.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func framing(err error) error {
	if err == nil {
		return errFraming
	}
	return err
}
