package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// wire is a request line, header lines and a body as raw bytes.
func wire(line, body string, header ...string) string {
	return line + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + strings.Join(append(header, "", ""), "\r\n") + body
}

func TestFraming_NoRequestIsSmuggled(t *testing.T) {
	const post = "POST " + chatPath
	good := ask("", false, "GOOD")
	length := fmt.Sprintf("Content-Length: %d", len(good))
	inner := wire(post, ask("", false, "SMUGGLED"), fmt.Sprintf("Content-Length: %d", len(ask("", false, "SMUGGLED"))), "Connection: close")
	chunked := func(ext string) string { return fmt.Sprintf("%x%s\r\n%s\r\n0\r\n\r\n", len(good), ext, good) }
	const te = "Transfer-Encoding: chunked"
	refused := []string{
		strings.Replace(wire(post, chunked(""), te), "HTTP/1.1", "HTTP/1.0", 1),
		wire(post, strings.TrimSuffix(chunked(""), "\r\n")+"Content-Length: 5\r\n\r\n", te, "Trailer: Content-Length"),
		wire(post, "0\r\n\r\n"+inner, fmt.Sprintf("Content-Length: %d", 5+len(inner)), te),
		wire(post, chunked(""), "Transfer-Encoding : chunked"),
		wire(post, chunked(""), "Transfer-Encoding\t: chunked"),
		wire(post, good, length, "Transfer-Encoding: \x0bchunked"),
		"POST " + chatPath + " HTTP/1.1\r\n Host: x\r\n\r\n", // obs-fold in front
		wire(post, good, length+"\rX: y"),
		wire(post, good, length, "X: \x00"),
		wire(post, good), // no framing
		wire(post, "zz\r\n"+good+"\r\n0\r\n\r\n", te),
		wire(post, "-5\r\n"+good+"\r\n0\r\n\r\n", te),
		wire(post, "fffffffffffffffff\r\n"+good, te),
		wire(post, fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(good)-1, good), te), // too short a chunk
		wire(post, good, length, "Host: y"),
		"POST " + chatPath + " HTTP/1.1\r\n" + length + "\r\n\r\n" + good, // no host
		"GET /healthz\r\n\r\n",
		strings.Replace(wire(post, good, length), "HTTP", "http", 1),
		"POST  " + chatPath + " HTTP/1.1\r\nHost: x\r\n\r\n",
	}
	for _, value := range []string{"-1", "0x10", "", "99999999999999999999", fmt.Sprint(len(good), ", 0"), fmt.Sprint("+", len(good)), fmt.Sprint(len(good), "\r\nContent-Length: 0")} {
		refused = append(refused, wire(post, good, "Content-Length: "+value))
	}
	for _, group := range []struct {
		raws []string
		want []int // statuses, in order; what engines see follows from them
	}{
		{refused, []int{400}},
		{[]string{
			wire(post, good, length),
			strings.Replace(wire(post, good, length), "HTTP/1.1", "HTTP/1.0", 1),
			wire(post, chunked(""), te),
			wire(post, chunked(";a=b"), te),
			wire(post, chunked(`;a="b`), te),
			wire(post, chunked(""), length, te),
			wire(post, chunked("")+inner, te, "Content-Length: 4"),
			wire(post, good, length, length),
			wire(post, chunked(""), "Transfer-Encoding: CHUNKED"),
			wire(post, chunked(""), "Transfer-Encoding:\r\n chunked"),
			strings.ReplaceAll(wire(post, good, length), "\r\n", "\n"),
			wire("GET /healthz", inner, fmt.Sprintf("Content-Length: %d", len(inner))),
			wire(post, good, length, "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
		}, []int{200}},
		{[]string{
			wire(post, chunked(""), te, te),
			wire(post, good, length, "Transfer-Encoding: identity"),
			wire(post, chunked(""), "Transfer-Encoding: gzip, chunked"),
			wire(post, good, length, "Transfer-Encoding: xchunked"),
		}, []int{501}},
		{[]string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", wire("CONNECT engine:8000", "", "Connection: close")}, []int{404}},
		{[]string{
			wire(post, good, length) + wire(post, good, length, "Connection: close"), // pipelined
			wire("GET /healthz", "", "Upgrade: websocket", "Connection: Upgrade") + inner,
		}, []int{200, 200}},
		{[]string{wire(post, "", "Content-Length: 0") + inner}, []int{400, 200}},
		{[]string{wire(post, good, length, "Expect: 100-continue", "Connection: close")}, []int{100, 200}},
		{[]string{wire(post, good, length, "Expect: x")}, []int{417}},
	} {
		for _, raw := range group.raws {
			r := run(t, setup{})
			conn := r.dial()
			_, _ = io.WriteString(conn, raw)
			if got := r.answers(conn, http.MethodPost, len(group.want)); !slices.Equal(got, group.want) {
				t.Errorf("%q: got statuses %d, want %d", raw, got, group.want)
			}
			r.stop()
			r.end() // turns that are not expected included
			turns := 0
			for i, code := range group.want {
				if code == 200 && (i > 0 || !strings.HasPrefix(raw, "GET")) {
					turns++
				}
			}
			prefill, decode := r.prefill[0].seen(), r.decode[0].seen()
			if len(prefill) != turns || len(decode) != turns {
				t.Fatalf("%q: engines saw %d and %d legs, want %d", raw, len(prefill), len(decode), turns)
			}
			legitimate := len(group.want) == 2 && strings.HasSuffix(raw, inner) // there it is a request of its own
			for _, l := range append(prefill, decode...) {
				if strings.Contains(l.body, "SMUGGLED") != legitimate || !strings.HasPrefix(l.body, `{"messages":[{"role":"user","content":"`) {
					t.Errorf("%q: an engine got %s", raw, l.body)
				}
			}
		}
	}
}

// answers reads the statuses of n answers to one method, and of one more that comes soon.
func (r *rig) answers(conn net.Conn, method string, n int) (statuses []int) {
	r.t.Helper()
	reader := bufio.NewReader(conn)
	for range n + 1 {
		if len(statuses) == n {
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		}
		resp, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err != nil {
			break
		}
		statuses = append(statuses, resp.StatusCode)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return statuses
}
