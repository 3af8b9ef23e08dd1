package http1

import (
	"errors"
	"io"
	"time"
)

// inline is the size up to which a request is written before anything is read. It fits into what kernels take though the
// peer reads nothing, so that the write does not wait for one that answers without reading.
const inline = 16 << 10

// exchange writes the request and reads the header of its answer. A peer may answer and close before it has read all; its
// answer is worth more than the error of the write.
func (r *Response) exchange(q *Request) error {
	room := r.client.requests.Get().(*requestRoom)
	defer r.client.requests.Put(room)
	first := q.appendHead(room[:0])
	n := min(len(q.Body), max(0, len(room)-len(first)))
	first = append(first, q.Body[:n]...)
	rest := q.Body[n:]
	q.Body = nil
	if len(rest) > 0 {
		return r.exchangeLarge(first, rest)
	}
	_, failed := r.conn.Write(first)
	r.cut = failed != nil
	if err := r.readHead(); err != nil && failed == nil {
		return err
	} else if err != nil {
		return failed
	}
	return nil
}

// exchangeLarge writes on a goroutine, which ends before this returns: a peer that refuses a large request may answer, and
// read nothing more.
func (r *Response) exchangeLarge(first, rest []byte) error {
	written := make(chan error, 1)
	go func() {
		_, err := r.conn.Write(first)
		if err == nil {
			_, err = r.conn.Write(rest)
		}
		written <- err
	}()
	err := r.readHead()
	if err != nil || r.Status >= 300 { // the rest, if any, is not wanted
		_ = r.conn.SetWriteDeadline(past())
	}
	r.cut = <-written != nil
	if err == nil && !r.cut {
		_ = r.conn.SetWriteDeadline(time.Time{})
	}
	return err
}

// past is a deadline that ends what waits.
func past() time.Time { return time.Unix(1, 0) }

// readHead reads up to the body of the answer.
func (r *Response) readHead() (err error) {
	room := r.client.answers.Get().(*answerRoom)
	r.room = room
	defer func() {
		if err != nil {
			r.release()
		}
	}()
	b, parsed, filled := room[:], 0, 0
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

// early is the error of a connection that has said nothing more, or has ended, before the end of an answer.
func early(err error) error {
	if err == nil {
		return io.ErrNoProgress
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
