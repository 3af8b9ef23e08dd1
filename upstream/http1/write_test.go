package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"
)

// inPieces cuts a body into pieces of growing length, empty ones among them.
func inPieces(body []byte) (pieces [][]byte) {
	for n := 0; len(body) > 0; n = 3*n + 1 {
		m := min(n, len(body))
		pieces, body = append(pieces, body[:m]), body[m:]
	}
	return append(pieces, nil)
}

// numbered is a body no two parts of which are alike.
func numbered(size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return body
}

// The pieces of a body come one behind the other, whatever the connection takes at once, and the caller's stay as they are.
func TestDo_WritesAllPieces(t *testing.T) {
	for _, size := range []int{0, 1, 100, inline - 200, inline - 50, inline, inline + 1, 256 << 10, 8 << 20} {
		want := numbered(size)
		s := newRaw(t, func(p *player, _ int) {
			for {
				r, err := http.ReadRequest(p.from)
				if err != nil {
					return
				}
				if got, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes: got %d others, %v", size, len(got), err)
				}
				p.say(okHead + "{}")
			}
		})
		for kind, dial := range dials() {
			c, pieces := clientOf(t, dial), inPieces(want)
			before := slices.Clone(pieces)
			for range 2 {
				q := s.post(nil)
				q.Body = pieces
				if _, body, err := fetch(t, c, q); err != nil || body != "{}" || q.Body != nil {
					t.Errorf("%s, %d bytes: got %q, %v", kind, size, body, err)
				}
			}
			if !slices.EqualFunc(pieces, before, bytes.Equal) {
				t.Errorf("%s, %d bytes: the pieces were changed", kind, size)
			}
		}
		if s.conns.Load() != 2 {
			t.Errorf("%d bytes: got %d connections, want one of each kind", size, s.conns.Load())
		}
	}
}

// reluctant takes some bytes at once, and each write that waits only for a while.
type reluctant struct {
	script
	takes  []int
	failed error
	waited int // writes that may wait
}

func (r *reluctant) WriteNow(pieces [][]byte) (int, error) {
	if r.failed != nil {
		return 0, r.failed
	}
	n := r.takes[0]
	r.takes = r.takes[1:]
	r.written = append(r.written, bytes.Join(pieces, nil)[:n]...)
	return n, nil
}

func (r *reluctant) Write(p []byte) (int, error) {
	r.waited++
	return r.script.Write(p)
}

// What is not taken at once is written behind it, from whichever byte on that is.
func TestDo_WritesTheRestOfWhatIsNotTakenAtOnce(t *testing.T) {
	body := numbered(inline + 10)
	whole := len("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16394\r\n\r\n") + len(body)
	for _, takes := range []int{0, 1, inline - 1, inline, inline + 1, whole - 1, whole} {
		conn := &reluctant{script: script{pieces: split(okHead+"{}", 4096)}, takes: []int{takes}}
		c := New(Config{Dial: func(context.Context, string, string) (Conn, error) { return conn, nil }, IdlePerHost: 1, IdleFor: time.Hour})
		q := &Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/", Body: [][]byte{body[:inline], body[inline:]}}
		if _, _, err := fetch(t, c, q); err != nil || len(conn.written) != whole || !bytes.HasSuffix(conn.written, body) {
			t.Errorf("%d at once: wrote %d of %d, %v", takes, len(conn.written), whole, err)
		}
		if (conn.waited == 0) != (takes == whole) {
			t.Errorf("%d at once: %d writes that may wait", takes, conn.waited)
		}
		c.Close()
	}
}

// A large request that could not be written is answered too, if there is an answer, and its connection is not used again.
func TestDo_ReadsAnAnswerBehindAFailureToWriteAtOnce(t *testing.T) {
	for answer, want := range map[string]error{"HTTP/1.1 400 X\r\nContent-Length: 2\r\n\r\nno": nil, "": syscall.EPIPE} {
		conn := &reluctant{script: script{pieces: split(answer, 4096)}, failed: &net.OpError{Op: "write", Err: syscall.EPIPE}}
		c := New(Config{Dial: func(context.Context, string, string) (Conn, error) { return conn, nil }, IdlePerHost: 1, IdleFor: time.Hour})
		q := &Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/", Body: [][]byte{make([]byte, inline)}}
		if _, _, err := fetch(t, c, q); !errors.Is(err, want) || (err == nil) != (want == nil) || !conn.closed.Load() {
			t.Errorf("%q: got %v, closed %v, want %v", answer, err, conn.closed.Load(), want)
		}
	}
}

// A room that waits for its next request holds nothing of the last one's body.
func TestRequestBuffer_HoldsNoBody(t *testing.T) {
	buffer := &requestBuffer{}
	q := &Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/", Body: [][]byte{make([]byte, inline), make([]byte, 1), make([]byte, 2)}}
	if pieces := buffer.fill(q); len(pieces) != 4 {
		t.Errorf("got %d pieces, want 4", len(pieces))
	}
	buffer.back(New(Config{}))
	for i, piece := range buffer.pieces {
		if piece != nil {
			t.Errorf("piece %d has %d bytes", i, len(piece))
		}
	}
}
