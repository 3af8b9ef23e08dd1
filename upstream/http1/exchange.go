package http1

import (
	"errors"
	"io"
	"net"
	"time"
)

// inline is the most bytes of a request that are written before anything is read. They fit into the kernel's buffers, so the write
// does not wait for a peer that answers without reading.
const inline = 16 << 10

// exchange prefers the answer to the error of the write: a peer may answer and close before it has read the request.
func (r *Response) exchange(q *Request) error {
	buffer := r.client.requests.Get().(*requestBuffer)
	pieces := buffer.fill(q)
	if len(pieces) > 1 || len(pieces[0]) > inline {
		return r.exchangeSlowly(buffer, pieces)
	}
	_, failed := r.conn.Write(pieces[0])
	buffer.back(r.client)
	r.cut = failed != nil
	if err := r.readHead(); err != nil && failed == nil {
		return err
	} else if err != nil {
		return failed
	}
	return nil
}

func (buffer *requestBuffer) fill(q *Request) [][]byte {
	first := q.appendHead(buffer.bytes[:0])
	pieces := append(buffer.pieces[:0], nil)
	for _, piece := range q.Body {
		n := min(len(piece), max(0, len(buffer.bytes)-len(first)))
		if first = append(first, piece[:n]...); n < len(piece) {
			pieces = append(pieces, piece[n:])
		}
	}
	pieces[0], q.Body = first, nil
	return pieces
}

// back returns the buffer to its pool when everything is written, so that nothing refers to the body during a long answer.
func (buffer *requestBuffer) back(to *Client) {
	clear(buffer.pieces[:])
	to.requests.Put(buffer)
}

// exchangeSlowly writes on a goroutine, which ends before it returns: a peer that refuses a large request may answer and read nothing
// more. All pieces go out in one system call where the connection is TCP and takes them at once.
func (r *Response) exchangeSlowly(buffer *requestBuffer, pieces [][]byte) error {
	written := make(chan error, 1)
	go func() {
		_, err := (*net.Buffers)(&pieces).WriteTo(r.conn)
		buffer.back(r.client)
		written <- err
	}()
	err := r.readHead()
	if err != nil || r.Status >= 300 { // the peer does not want the rest
		_ = r.conn.SetWriteDeadline(past())
	}
	r.cut = <-written != nil
	if err == nil && !r.cut {
		_ = r.conn.SetWriteDeadline(time.Time{})
	}
	return err
}

func past() time.Time { return time.Unix(1, 0) }

func (r *Response) readHead() (err error) {
	buffer := r.client.answers.Get().(*answerBuffer)
	r.buffer = buffer
	defer func() {
		if err != nil {
			r.release()
		}
	}()
	b, parsed, filled := buffer[:], 0, 0
	var h head
	for done := false; !done; {
		if filled == len(b) {
			if len(b) == maxHead {
				return errHeadTooLarge
			}
			b = append(make([]byte, 0, maxHead), b...)[:maxHead]
			r.release()
		}
		n, failed := r.conn.Read(b[filled:])
		if n == 0 {
			return early(failed)
		}
		filled += n
		if n, done, err = h.read(b[parsed:filled]); err != nil {
			return err
		}
		parsed += n
	}
	r.rest = b[parsed:filled]
	r.begin(&h)
	return nil
}

// early returns the error for a connection that ends, or sends nothing more, before the end of an answer.
func early(err error) error {
	if err == nil {
		return io.ErrNoProgress
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
