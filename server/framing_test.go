package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	once, refused := []int{200}, []int{400}
	for _, row := range []struct {
		name, raw string
		want      []int // statuses, in order; what engines see follows from them
	}{
		{"plain", wire(post, good, length), once},
		{"pipelined", wire(post, good, length) + wire(post, good, length, "Connection: close"), []int{200, 200}},
		{"HTTP/1.0", strings.Replace(wire(post, good, length), "HTTP/1.1", "HTTP/1.0", 1), once},
		{"HTTP/1.0 with TE", strings.Replace(wire(post, chunked(""), te), "HTTP/1.1", "HTTP/1.0", 1), refused},
		{"chunked", wire(post, chunked(""), te), once},
		{"chunk extension", wire(post, chunked(";a=b"), te), once},
		{"chunk extension with quotes", wire(post, chunked(`;a="b`), te), once},
		{"trailer", wire(post, strings.TrimSuffix(chunked(""), "\r\n")+"Content-Length: 5\r\n\r\n", te, "Trailer: Content-Length"), refused},
		{"CL and TE", wire(post, chunked(""), length, te), once},
		{"CL and TE, smuggling", wire(post, "0\r\n\r\n"+inner, fmt.Sprintf("Content-Length: %d", 5+len(inner)), te), refused},
		{"CL behind TE, smuggling", wire(post, chunked("")+inner, te, "Content-Length: 4"), once},
		{"two CLs", wire(post, good, length, "Content-Length: 0"), refused},
		{"two equal CLs", wire(post, good, length, length), once},
		{"CL list", wire(post, good, length+", 0"), refused},
		{"CL with sign", wire(post, good, strings.Replace(length, ": ", ": +", 1)), refused},
		{"negative CL", wire(post, good, "Content-Length: -1"), refused},
		{"hex CL", wire(post, good, "Content-Length: 0x10"), refused},
		{"empty CL", wire(post, good, "Content-Length:"), refused},
		{"huge CL", wire(post, good, "Content-Length: 99999999999999999999"), refused},
		{"space before colon", wire(post, chunked(""), "Transfer-Encoding : chunked"), refused},
		{"tab before colon", wire(post, chunked(""), "Transfer-Encoding\t: chunked"), refused},
		{"TE twice", wire(post, chunked(""), te, te), []int{501}},
		{"TE identity", wire(post, good, length, "Transfer-Encoding: identity"), []int{501}},
		{"TE list", wire(post, chunked(""), "Transfer-Encoding: gzip, chunked"), []int{501}},
		{"TE x", wire(post, good, length, "Transfer-Encoding: xchunked"), []int{501}},
		{"TE vertical tab", wire(post, good, length, "Transfer-Encoding: \x0bchunked"), refused},
		{"TE in capitals", wire(post, chunked(""), "Transfer-Encoding: CHUNKED"), once},
		{"obs-fold", wire(post, chunked(""), "Transfer-Encoding:\r\n chunked"), once},
		{"obs-fold in front", "POST " + chatPath + " HTTP/1.1\r\n Host: x\r\n\r\n", refused},
		{"bare CR", wire(post, good, length+"\rX: y"), refused},
		{"NUL", wire(post, good, length, "X: \x00"), refused},
		{"bare LF", strings.ReplaceAll(wire(post, good, length), "\r\n", "\n"), once},
		{"no body", wire(post, "", "Content-Length: 0") + inner, []int{400, 200}},
		{"no framing", wire(post, good), refused},
		{"bad chunk size", wire(post, "zz\r\n"+good+"\r\n0\r\n\r\n", te), refused},
		{"negative chunk size", wire(post, "-5\r\n"+good+"\r\n0\r\n\r\n", te), refused},
		{"huge chunk size", wire(post, "fffffffffffffffff\r\n"+good, te), refused},
		{"chunk too short", wire(post, fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(good)-1, good), te), refused},
		{"GET with body", wire("GET /healthz", inner, fmt.Sprintf("Content-Length: %d", len(inner))), once},
		{"two hosts", wire(post, good, length, "Host: y"), refused},
		{"no host", "POST " + chatPath + " HTTP/1.1\r\n" + length + "\r\n\r\n" + good, refused},
		{"upgrade to h2c", wire(post, good, length, "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"), once},
		{"upgrade to websocket", wire("GET /healthz", "", "Upgrade: websocket", "Connection: Upgrade") + inner, []int{200, 200}},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{404}},
		{"CONNECT", wire("CONNECT engine:8000", "", "Connection: close"), []int{404}},
		{"HTTP/0.9", "GET /healthz\r\n\r\n", refused},
		{"lower-case version", strings.Replace(wire(post, good, length), "HTTP", "http", 1), refused},
		{"two spaces", "POST  " + chatPath + " HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"Expect", wire(post, good, length, "Expect: 100-continue", "Connection: close"), []int{100, 200}},
		{"Expect of something else", wire(post, good, length, "Expect: x"), []int{417}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := run(t, setup{})
			got := r.exchange(row.raw, len(row.want))
			if fmt.Sprint(got) != fmt.Sprint(row.want) {
				t.Errorf("got statuses %d, want %d", got, row.want)
			}
			r.stop()
			r.end() // turns that are not expected included
			turns := 0
			for i, code := range row.want {
				if code == 200 && !strings.HasPrefix(row.raw, "GET") || code == 200 && i > 0 {
					turns++
				}
			}
			prefill, decode := r.prefill[0].seen(), r.decode[0].seen()
			if len(prefill) != turns || len(decode) != turns {
				t.Fatalf("engines saw %d and %d legs, want %d", len(prefill), len(decode), turns)
			}
			legitimate := row.name == "no body" || row.name == "upgrade to websocket" // there it is a request of its own
			for _, l := range append(prefill, decode...) {
				if strings.Contains(l.body, "SMUGGLED") != legitimate || !strings.HasPrefix(l.body, `{"messages":[{"role":"user","content":"`) {
					t.Errorf("an engine got %s", l.body)
				}
			}
		})
	}
}

// exchange sends raw bytes and returns the statuses of up to n answers; one more is reported too.
func (r *rig) exchange(raw string, n int) []int {
	r.t.Helper()
	conn := r.dial()
	_, _ = io.WriteString(conn, raw)
	return r.answersUntilQuiet(conn, n)
}

// answers reads the statuses of n answers to one method.
func (r *rig) answers(conn net.Conn, method string, n int) (statuses []int) {
	r.t.Helper()
	reader := bufio.NewReader(conn)
	for range n {
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

func (r *rig) answersUntilQuiet(conn net.Conn, n int) []int {
	r.t.Helper()
	reader := bufio.NewReader(conn)
	var statuses []int
	for range n + 1 {
		if len(statuses) == n {
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			if len(statuses) < n && isTimeout(err) {
				r.t.Errorf("no answer within %s", patience)
			}
			break
		}
		statuses = append(statuses, resp.StatusCode)
		if resp.StatusCode == 100 {
			continue
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil && !errors.Is(err, io.EOF) {
			break
		}
		_ = resp.Body.Close()
		if resp.Close {
			break
		}
	}
	return statuses
}
