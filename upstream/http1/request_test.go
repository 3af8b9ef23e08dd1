package http1

import (
	"context"
	"errors"
	"net"
	"runtime"
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
	good := Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/"}
	field := func(name, value string) func(*Request) {
		return func(q *Request) { q.Header = []Field{{"A", "b"}, {name, value}} }
	}
	for name, tc := range map[string]struct {
		spoil func(*Request)
		want  RequestError
	}{
		"HEAD":               {func(q *Request) { q.Method = "HEAD" }, errMethod},
		"no method":          {func(q *Request) { q.Method = "" }, errMethod},
		"scheme":             {func(q *Request) { q.Scheme = "ftp" }, errScheme},
		"no authority":       {func(q *Request) { q.Authority = "" }, errAuthority},
		"user":               {func(q *Request) { q.Authority = "u:p@a" }, errAuthority},
		"path in authority":  {func(q *Request) { q.Authority = "a/b" }, errAuthority},
		"blank in authority": {func(q *Request) { q.Authority = "a b" }, errAuthority},
		"CRLF in authority":  {func(q *Request) { q.Authority = "a\r\nB: c" }, errAuthority},
		"no path":            {func(q *Request) { q.Path = "" }, errPath},
		"blank in a path":    {func(q *Request) { q.Path = "/ HTTP/1.1" }, errPath},
		"LF in a path":       {func(q *Request) { q.Path = "/\n" }, errPath},
		"path above ASCII":   {func(q *Request) { q.Path = "/ä" }, errPath},
		"URL as path":        {func(q *Request) { q.Path = "http://a/" }, errPath},
		"no name":            {field("", "x"), errName},
		"blank in a name":    {field("B ", "x"), errName},
		"colon in a name":    {field("B:", "x"), errName},
		"CRLF in a value":    {field("B", "x\r\nContent-Length: 3"), errValue},
		"LF in a value":      {field("B", "x\ny"), errValue},
		"NUL in a value":     {field("B", "\x00"), errValue},
		"length":             {field("content-length", "1"), errReserved},
		"coding":             {field("Transfer-Encoding", "chunked"), errReserved},
		"host":               {field("HOST", "b"), errReserved},
		"connection":         {field("Connection", "close"), errReserved},
		"expectation":        {field("Expect", "100-continue"), errReserved},
	} {
		q := good
		tc.spoil(&q)
		c := New(Config{Dial: func(context.Context, string, string) (Conn, error) { panic("dialled") }})
		if _, err := c.Do(t.Context(), &q); !errors.Is(err, tc.want) || err.Error() == "" {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
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
