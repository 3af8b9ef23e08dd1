package server_test

import (
	"compress/zlib"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"carryover/server"
	"carryover/upstream/body"
)

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// wantUntouched checks that no engine heard of a request.
func (r *rig) wantUntouched() {
	r.t.Helper()
	r.prefill[0].wantLegs(0)
	r.decode[0].wantLegs(0)
}

// with puts members into a chat request.
func with(members string) string {
	return `{"model":"m","messages":[{"role":"user","content":"q"}],` + members + `}`
}

func TestClientLimits_BodyIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: func(c *server.Config) { c.MaxBodyBytes = 1000 }})
	fits := with(`"x":"` + strings.Repeat("y", 1000-len(with(`"x":""`))) + `"`)
	for _, sized := range []bool{true, false} {
		send := func(body string) reply {
			var from io.Reader = strings.NewReader(body)
			if !sized {
				from = io.MultiReader(from)
			}
			return r.do(t.Context(), http.MethodPost, chatPath, from)
		}
		r.wantOK(send(fits), "miss;")
		r.wantError(send(fits+" "), 413, "request_too_large")
	}
	r.prefill[0].wantLegs(2)
	// Refused by its length alone, before a byte of it is read.
	conn := r.dial()
	_, _ = io.WriteString(conn, wire("POST "+chatPath, "", "Content-Length: 1000000"))
	answer := make([]byte, 12)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 413" {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestClientLimits_BytesInFlightAreBounded(t *testing.T) {
	for name, framing := range map[string][2]string{"length": {"Content-Length: 990"}, "chunked": {"Transfer-Encoding: chunked", "5\r\n"}} {
		t.Run(name, func(t *testing.T) {
			reading := &bodyReads{begun: make(chan struct{})}
			r := newRig(t, setup{front: reading.watch, cfg: func(c *server.Config) {
				c.MaxBodyBytes, c.MaxInflightBytes, c.ClientBodyTimeout = 1000, 1000, time.Hour
				byTenant(c)
			}})
			conn := r.dial()
			_, _ = io.WriteString(conn, wire("POST "+chatPath, framing[1]+"{    ", framing[0]))
			<-reading.begun
			another := func() reply {
				return r.send(with(`"x":"`+strings.Repeat("y", 600)+`"`), "X-Tenant", "another client")
			}
			p := reply{}
			r.until(func() bool { p = another(); return p.status != 200 })
			if e := r.wantError(p, 503, "overloaded"); strings.Contains(e.Message, "client") {
				t.Errorf("got message %q to a client that holds nothing", e.Message)
			}
			wantRetryAfter(t, p, "1")
			_ = conn.Close()
			r.until(func() bool { return another().status == 200 }) // its share came back
		})
	}
}

func TestRequest_OtherMediaTypesAndCodingsAreRefused(t *testing.T) {
	r := newRig(t, setup{})
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json, text/plain", "text/json"} {
		r.wantError(r.do(t.Context(), http.MethodPost, chatPath, nil, "Content-Type", media), 415, "unsupported_media_type")
	}
	for _, coding := range []string{"br", "identity, gzip", "x"} {
		p := r.send(ask("", true, "q"), "Content-Encoding", coding)
		if r.wantError(p, 415, "unsupported_encoding"); p.header.Get("Accept-Encoding") != "zstd, gzip, deflate" {
			t.Errorf("%s: got Accept-Encoding %q", coding, p.header.Get("Accept-Encoding"))
		}
	}
	r.wantUntouched()
	r.wantOK(r.send(ask("", true, "q"), "Content-Encoding", "Identity"), "miss;")
	if p := r.do(t.Context(), http.MethodOptions, chatPath, nil, "Origin", "http://x", "Access-Control-Request-Method", "POST"); p.status != 405 {
		t.Errorf("got %d for a preflight, want 405", p.status)
	}
	p := r.send(ask("", true, "q"), "Origin", "http://x")
	for name := range p.header {
		if strings.HasPrefix(name, "Access-Control") {
			t.Errorf("got header %s", name)
		}
	}
}

// A compressed body is what it decodes to: engines get that, and limits and accounts count its bytes.
func TestRequest_CompressedBodies(t *testing.T) {
	z, _ := zstd.NewWriter(nil)
	packed := map[string]func(string) string{
		"zstd": func(s string) string { return string(z.EncodeAll([]byte(s), nil)) }, "GZIP": zipped, "deflate": packs(zlib.NewWriter),
	}
	const most = 40 << 10 // which may be of one letter
	spaces, messages := strings.Repeat(" ", 24<<20), body.Messages.Path()
	for coding, pack := range packed {
		r, good := newRig(t, setup{}), newRig(t, setup{})
		for n, path := range []string{chatPath, textPath, messages, body.Responses.Path()} {
			plain := with(`"prompt":"x","input":"x","max_tokens":1,"x":"` + strings.Repeat("y", most) + rand.Text() + `"`)
			_ = good.sendTo(path, pack(plain), "Content-Encoding", coding)
			if legs := good.decode[0].seen(); len(legs) != n+1 || !strings.Contains(legs[n].body, plain[most:len(plain)-1]) || legs[n].header["Content-Encoding"] != nil {
				t.Errorf("%s %s: engines got %.200v", coding, path, legs)
			}
		}
		large := strings.Repeat(rand.Text()+strings.Repeat(" ", 99), 10_000) // less than a hundredth of it is sent
		bomb := pack(spaces)
		for name, row := range map[string]struct {
			body, code string
			status     int
		}{
			"large": {pack(large), "request_too_large", 413}, "bomb": {bomb, "request_too_large", 413},
			"cut": {pack(ask("", true, "q"))[:40], "bad_request", 400}, "not compressed": {ask("", true, "q"), "bad_request", 400},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p := r.send(row.body, "Content-Encoding", coding)
			runtime.ReadMemStats(&after)
			if r.wantError(p, row.status, row.code); after.TotalAlloc-before.TotalAlloc > 16<<20 {
				t.Errorf("%s, %s: took %d bytes", coding, name, after.TotalAlloc-before.TotalAlloc)
			}
		}
		if p := r.sendTo(messages, bomb, "Content-Encoding", coding); p.status != 413 || !strings.Contains(p.body, `"type":"request_too_large"`) {
			t.Errorf("%s: got %d %s", coding, p.status, p.body)
		}
		r.wantUntouched()
	}
}

// What is wrong with a body is told by its code, and no engine hears of it. See package rawjson for all that is refused.
func TestRequest_BadJSONIsRefused(t *testing.T) {
	r := newRig(t, setup{})
	for body, code := range map[string]string{
		"": "invalid_json", `{"model":"m"`: "invalid_json", "\xef\xbb\xbf" + with(`"a":1`): "invalid_json", with("\"a\":\"\xff\""): "invalid_utf8",
		with(`"mode\u006c":"n"`): "duplicate_key", with(`"a":` + levels(100)): "too_complex",
	} {
		r.wantError(r.send(body), 400, code)
	}
	r.wantUntouched()
}

// A body that never comes ends its connection, whether it is waited for or was refused unread.
func TestClientLimits_BodyThatNeverComesHoldsNoConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: func(c *server.Config) { c.ClientBodyTimeout = 100 * time.Millisecond }})
	for _, row := range [][3]string{
		{"POST " + chatPath, "X-A: b", "408"}, {"POST " + chatPath, "Content-Encoding: br", "415"}, {"POST /nope", "X-A: b", "404"}, {"PUT " + chatPath, "X-A: b", "405"},
		{"GET /healthz", "X-A: b", "200"},
	} {
		conn := r.dial()
		_, _ = io.WriteString(conn, wire(row[0], "{", row[1], "Content-Length: 100"))
		if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+row[2]) || row[2] == "408" && !strings.Contains(string(answer), `"code":"request_timeout"`) {
			t.Errorf("%s: got %q, %v; want %s and the end of the connection", row[0], answer, err, row[2])
		}
	}
	r.wantUntouched()
}

// What an answer has left is flushed after its handler has returned, which must be bounded like every write.
func TestClientLimits_ClientThatReadsNothingIsCut(t *testing.T) {
	t.Parallel()
	requests := []string{wire("GET /v1/models", "")}
	for _, stream := range []bool{true, false} {
		body := ask("", stream, "q")
		requests = append(requests, wire("POST "+chatPath, body, fmt.Sprintf("Content-Length: %d", len(body))))
	}
	for _, request := range requests {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.ClientWriteTimeout = 100 * time.Millisecond }})
		some := replyBody("application/json", `{"x":"`+strings.Repeat("x", 3000)+`"}`)
		r.decode[0].models = some
		r.decode[0].always(func(w http.ResponseWriter, q *http.Request, l leg) {
			if l.streams() {
				floods(w, q, l)
			} else {
				some(w, q, l)
			}
		})
		conn := r.dial()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		var err error
		for err == nil { // some thousand requests, until the kernel's buffers are full
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, err = io.WriteString(conn, request)
		}
		if isTimeout(err) {
			t.Error("a client that does not read keeps its connection")
		}
	}
}
