package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"
)

func TestDo_WritesTheRequestAsItIs(t *testing.T) {
	for _, tc := range []struct {
		q    Request
		want string
	}{
		{Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/m?x=1"}, "GET /m?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{Request{Method: "POST", Scheme: "http", Authority: "[::1]:8000", Path: "/"}, "POST / HTTP/1.1\r\nHost: [::1]:8000\r\nContent-Length: 0\r\n\r\n"},
		{
			Request{Method: "POST", Scheme: "https", Authority: "a_b.c:1", Path: "/v1", Header: []Field{{"A", ""}, {"b-C", "d\te"}}, Body: [][]byte{[]byte("{}")}},
			"POST /v1 HTTP/1.1\r\nHost: a_b.c:1\r\nA: \r\nb-C: d\te\r\nContent-Length: 2\r\n\r\n{}",
		},
	} {
		conn := &script{pieces: split(okHead+"{}", 4096)}
		if _, _, err := fetch(t, scripted(conn), &tc.q); err != nil || string(conn.written) != tc.want {
			t.Errorf("got %q, %v, want %q", conn.written, err, tc.want)
		}
		if tc.q.Body != nil {
			t.Error("the body is still held")
		}
	}
}

func TestDo_RefusesRequestsThatCanBeReadInTwoWays(t *testing.T) {
	for want, requests := range map[RequestError][]string{ // method, scheme, authority, path, and a field's name and value
		errMethod:    {"HEAD|http|a|/", "|http|a|/"},
		errScheme:    {"POST|ftp|a|/"},
		errAuthority: {"POST|http||/", "POST|http|u:p@a|/", "POST|http|a/b|/", "POST|http|a b|/", "POST|http|a\r\nB: c|/"},
		errPath:      {"POST|http|a|", "POST|http|a|/ HTTP/1.1", "POST|http|a|/\n", "POST|http|a|/ä", "POST|http|a|http://a/"},
		errName:      {"POST|http|a|/||x", "POST|http|a|/|B |x", "POST|http|a|/|B:|x"},
		errValue:     {"POST|http|a|/|B|x\r\nContent-Length: 3", "POST|http|a|/|B|x\ny", "POST|http|a|/|B|\x00"},
		errReserved: {
			"POST|http|a|/|content-length|1", "POST|http|a|/|Transfer-Encoding|chunked", "POST|http|a|/|HOST|b", "POST|http|a|/|Connection|close",
			"POST|http|a|/|Expect|100-continue",
		},
	} {
		for _, text := range requests {
			part := strings.Split(text, "|")
			q := Request{Method: part[0], Scheme: part[1], Authority: part[2], Path: part[3]}
			if len(part) > 4 {
				q.Header = []Field{{"A", "b"}, {part[4], part[5]}}
			}
			c := New(Config{Dial: func(context.Context, string, string) (Conn, error) { panic("dialled") }})
			if _, err := c.Do(t.Context(), &q); !errors.Is(err, want) || err.Error() == "" {
				t.Errorf("%q: got %v, want %v", text, err, want)
			}
		}
	}
}

func TestDo_DialsTheAuthority(t *testing.T) {
	refused := errors.New("refused")
	for authority, want := range map[string]string{
		"a": "a:80", "a:8000": "a:8000", "a:": "a:80", "[::1]": "[::1]:80", "[::1]:8000": "[::1]:8000", "127.0.0.1": "127.0.0.1:80",
	} {
		for scheme, port := range map[string]string{"http": ":80", "https": ":443"} {
			got := ""
			c := New(Config{Dial: func(_ context.Context, s, address string) (Conn, error) {
				got = s + " " + address
				return nil, refused
			}})
			q := &Request{Method: "GET", Scheme: scheme, Authority: authority, Path: "/", Connected: func(net.Conn) { t.Error("connected") }}
			full := scheme + " " + want
			if cut, ok := strings.CutSuffix(full, ":80"); ok {
				full = cut + port
			}
			if _, err := c.Do(t.Context(), q); !errors.Is(err, refused) || got != full {
				t.Errorf("%s: dialled %s, %v, want %s", authority, got, err, full)
			}
		}
	}
}

func TestDo_ForgetsTheBodyOnceItIsWritten(t *testing.T) {
	for _, size := range []int{1 << 10, 256 << 10, -256 << 10} { // less than 0 for a connection that takes it piece by piece
		dial := dialTCP
		if size < 0 {
			size, dial = -size, dialApart
		}
		has, may := make(chan struct{}), make(chan struct{})
		s := newRaw(t, func(p *player, _ int) {
			p.request()
			close(has)
			<-may
			p.say(okHead + "{}")
		})
		c := clientOf(t, dial)
		body := new([256 << 10]byte)
		held := weak.Make(body)
		q := s.post(body[:size])
		body = nil
		ended := make(chan error, 1)
		go func() {
			_, _, err := fetch(t, c, q)
			ended <- err
		}()
		<-has
		for limit := time.Now().Add(10 * time.Second); held.Value() != nil; runtime.GC() {
			if time.Now().After(limit) {
				t.Errorf("%d bytes: the body is held", size)
				break
			}
		}
		close(may)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

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
