package http1

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"testing"
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
