package upstream

import (
	"bytes"
	"io"
)

// maxEmptyReads is how many reads in a row may return nothing before a source counts as broken, as in bufio.
const maxEmptyReads = 100

// eventReader reads server-sent events (WHATWG HTML 9.2.6) one by one, however their bytes are split. It returns an
// event as soon as the line that ends it has arrived. It keeps all that it has read, so it suits only the beginning of
// a stream; package sse relays streams.
type eventReader struct {
	from io.Reader
	most int    // limit of bytes that are read
	read []byte // the stream so far; its bytes are never changed
	at   int    // beginning of the next line
	seen int    // the next line does not end before here
	cr   bool   // the last line has ended with a CR, which an LF may follow
	err  error  // why the stream has ended
}

// next returns the data of the next event that has data. It is not to be changed. At the end of the stream an
// incomplete event is dropped, and the error is that of the source; beyond the limit it is ErrAnswerTooLarge.
func (r *eventReader) next() (data []byte, err error) {
	for lines := 0; ; {
		begins := r.at == 0
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if begins {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			if len(data) > 0 {
				return data, nil
			}
			data, lines = nil, 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		switch lines++; lines {
		case 1:
			data = value // a part of read, not a copy
		case 2:
			data = bytes.Join([][]byte{data, value}, []byte("\n"))
		default:
			data = append(append(data, '\n'), value...)
		}
	}
}

// line returns the next line without its end: LF, CRLF or CR. A CR ends its line at once.
func (r *eventReader) line() ([]byte, error) {
	for {
		if r.cr && r.at < len(r.read) {
			if r.cr = false; r.read[r.at] == '\n' {
				r.at++
			}
		}
		from := max(r.at, r.seen)
		if i := bytes.IndexAny(r.read[from:], "\r\n"); i >= 0 {
			line := r.read[r.at : from+i]
			r.at, r.cr = from+i+1, r.read[from+i] == '\r'
			return line, nil
		}
		r.seen = len(r.read)
		if err := r.more(); err != nil {
			return nil, err
		}
	}
}

// more reads more of the source.
func (r *eventReader) more() error {
	if r.err != nil {
		return r.err
	}
	if len(r.read) == r.most {
		return ErrAnswerTooLarge
	}
	if len(r.read) == cap(r.read) {
		// Data that was returned before must not move.
		r.read = append(make([]byte, 0, min(max(usualAnswer, 2*cap(r.read)), r.most)), r.read...)
	}
	for range maxEmptyReads {
		n, err := r.from.Read(r.read[len(r.read):cap(r.read)])
		r.read, r.err = r.read[:len(r.read)+n], err
		switch {
		case n > 0:
			return nil
		case err != nil:
			return err
		}
	}
	return io.ErrNoProgress
}
