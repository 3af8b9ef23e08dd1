package server_test

import (
	"bytes"
	"compress/zlib"
	"context"
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
	if n := len(r.prefill[0].seen()) + len(r.decode[0].seen()); n != 0 {
		r.t.Errorf("engines saw %d legs, want none", n)
	}
}

// with puts members into a chat request.
func with(members string) string {
	return `{"model":"m","messages":[{"role":"user","content":"q"}],` + members + `}`
}

func TestRequest_BodyCannotSteerAnEngine(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.send(with(`"request_id":"mine","conversation_id":"c"`)), "miss;")
	for _, l := range append(r.prefill[0].seen(), r.decode[0].seen()...) {
		if strings.Contains(l.body, "request_id\":\"mine") || strings.Contains(l.body, "conversation_id") {
			t.Errorf("an engine got %s", l.body)
		}
	}
}

func TestClientLimits_BodyIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: func(c *server.Config) { c.MaxBodyBytes = 1000 }})
	fits := with(`"x":"` + strings.Repeat("y", 1000-len(with(`"x":""`))) + `"`)
	r.wantOK(r.send(fits), "miss;")
	r.wantOK(r.do(context.Background(), http.MethodPost, chatPath, io.MultiReader(strings.NewReader(fits))), "miss;")
	over := fits + " "
	r.wantError(r.send(over), 413, "request_too_large")
	r.wantError(r.do(context.Background(), http.MethodPost, chatPath, io.MultiReader(strings.NewReader(over))), 413, "request_too_large")
	if n := len(r.prefill[0].seen()); n != 2 {
		t.Errorf("got %d prefill legs, want 2", n)
	}
	// Refused by its length alone, before a byte of it is read.
	conn := r.dial()
	_, _ = io.WriteString(conn, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
	answer := make([]byte, 12)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 413" {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestClientLimits_BytesInFlightAreBounded(t *testing.T) {
	for name, framing := range map[string]string{"length": "Content-Length: 990\r\n\r\n", "chunked": "Transfer-Encoding: chunked\r\n\r\n5\r\n"} {
		t.Run(name, func(t *testing.T) {
			reading := &bodyReads{begun: make(chan struct{})}
			r := newRig(t, setup{front: reading.watch, cfg: func(c *server.Config) {
				c.MaxBodyBytes, c.MaxInflightBytes, c.ClientBodyTimeout = 1000, 1000, time.Hour
				byTenant(c)
			}})
			conn := r.dial()
			_, _ = io.WriteString(conn, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Request-Id: slow\r\n"+framing+"{    ")
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

func TestClientLimits_TurnsInFlightAreBounded(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.MaxStreams = 1 }})
	gate := make(chan struct{})
	r.decode[0].next(waits(gate, decodes))
	first := make(chan reply, 1)
	go func() { first <- r.turn("", 1, true) }()
	r.decode[0].await(1)
	p := r.turn("", 1, true)
	r.wantError(p, 503, "queue_full")
	wantRetryAfter(t, p, "1")
	close(gate)
	r.wantOK(<-first, "miss;")
	r.until(func() bool { return r.turn("", 1, true).status == 200 })
}

func TestRequest_BadJSONIsRefused(t *testing.T) {
	for name, row := range map[string]struct{ body, code string }{
		"empty":         {"", "invalid_json"},
		"array":         {"[]", "invalid_json"},
		"text":          {`"x"`, "invalid_json"},
		"cut":           {`{"model":"m"`, "invalid_json"},
		"trailing":      {with(`"a":1`) + "{}", "invalid_json"},
		"BOM":           {"\xef\xbb\xbf" + with(`"a":1`), "invalid_json"},
		"NaN":           {with(`"a":NaN`), "invalid_json"},
		"comma":         {with(`"a":1,`), "invalid_json"},
		"UTF-8":         {with("\"a\":\"\xff\""), "invalid_utf8"},
		"control":       {with("\"a\":\"\x01\""), "invalid_json"},
		"duplicate":     {with(`"model":"n"`), "duplicate_key"},
		"escaped twice": {with(`"mode\u006c":"n"`), "duplicate_key"},
		"depth":         {with(`"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100)), "too_complex"},
		"breadth": {with(func() string {
			var b strings.Builder
			for i := range 300 {
				fmt.Fprintf(&b, `"k%d":1,`, i)
			}
			return b.String() + `"z":1`
		}()), "too_complex"},
		"long key": {with(`"` + strings.Repeat("k", 300) + `":1`), "too_complex"},
		"stream":   {with(`"stream":"yes"`), "invalid_type"},
		"n":        {with(`"n":"2"`), "invalid_type"},
		"n null":   {with(`"n":null,"n":1`), "duplicate_key"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.wantError(r.send(row.body), 400, row.code)
			r.wantUntouched()
		})
	}
}

func TestRequest_UntouchedMembersKeepTheirBytes(t *testing.T) {
	r := newRig(t, setup{})
	const unusual = `"big":9007199254740993, "f" : 1.10e+05,"html":"<&>\u003c\/","nul":null,"temperature":0.70`
	r.wantOK(r.send(with(unusual)), "miss;")
	for _, l := range append(r.prefill[0].seen(), r.decode[0].seen()...) {
		if !strings.Contains(l.body, unusual) {
			t.Errorf("an engine got %s, want %s as it was", l.body, unusual)
		}
	}
}

func TestRequest_OtherMediaTypesAndCodingsAreRefused(t *testing.T) {
	r := newRig(t, setup{})
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json, text/plain", "text/json"} {
		p := r.do(context.Background(), http.MethodPost, chatPath, nil, "Content-Type", media)
		r.wantError(p, 415, "unsupported_media_type")
	}
	for _, coding := range []string{"br", "identity, gzip", "x"} {
		p := r.send(ask("", true, "q"), "Content-Encoding", coding)
		if r.wantError(p, 415, "unsupported_encoding"); p.header.Get("Accept-Encoding") != "zstd, gzip, deflate" {
			t.Errorf("%s: got Accept-Encoding %q", coding, p.header.Get("Accept-Encoding"))
		}
	}
	r.wantUntouched()
	r.wantOK(r.send(ask("", true, "q"), "Content-Encoding", "Identity"), "miss;")
	if p := r.do(context.Background(), http.MethodOptions, chatPath, nil, "Origin", "http://x", "Access-Control-Request-Method", "POST"); p.status != 405 {
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
		"zstd": func(s string) string { return string(z.EncodeAll([]byte(s), nil)) }, "GZIP": zipped,
		"deflate": func(s string) string {
			var b bytes.Buffer
			w := zlib.NewWriter(&b)
			_, _ = io.WriteString(w, s)
			_ = w.Close()
			return b.String()
		},
	}
	const most = 40 << 10 // which may be of one letter
	spaces, messages := strings.Repeat(" ", 24<<20), body.Messages.Path()
	for coding, pack := range packed {
		r := newRig(t, setup{})
		for _, path := range []string{chatPath, textPath, messages, body.Responses.Path()} {
			plain := with(`"prompt":"x","input":"x","max_tokens":1,"x":"` + strings.Repeat("y", most) + rand.Text() + `"`)
			_ = r.sendTo(path, pack(plain), "Content-Encoding", coding)
			if legs := r.decode[0].seen(); len(legs) != 1 || !strings.Contains(legs[0].body, plain[most:len(plain)-1]) || legs[0].header["Content-Encoding"] != nil {
				t.Errorf("%s %s: engines got %.200v", coding, path, legs)
			}
			r = newRig(t, setup{})
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

func TestClientLimits_SlowBodyIsCut(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.ClientBodyTimeout = 100 * time.Millisecond }})
	conn := r.dial()
	_, _ = io.WriteString(conn, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") || !strings.Contains(string(answer), `"code":"request_timeout"`) {
		t.Errorf("got %q, %v; want 408 and the end of the connection", answer, err)
	}
	r.wantUntouched()
}

// What an answer has left is flushed after its handler has returned, which must be bounded like every write.
func TestClientLimits_PipeliningClientThatReadsNothingIsCut(t *testing.T) {
	t.Parallel()
	for _, request := range []string{wire("GET /v1/models", ""), wire("POST "+chatPath, ask("", false, "q"), fmt.Sprintf("Content-Length: %d", len(ask("", false, "q"))))} {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.ClientWriteTimeout = 100 * time.Millisecond }})
		r.decode[0].models = replyBody("application/json", `"`+strings.Repeat("x", 3000)+`"`)
		r.decode[0].always(replyBody("application/json", `{"x":"`+strings.Repeat("x", 3000)+`"}`))
		conn := r.dial()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		for { // some thousand requests, until the kernel's buffers are full
			_ = conn.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(conn, request); isTimeout(err) {
				t.Error("a client that does not read keeps its connection")
				break
			} else if err != nil {
				break
			}
		}
	}
}

// A body that is refused unread must not hold its connection either.
func TestClientLimits_RefusedBodyThatNeverComesHoldsNoConnection(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"POST /nope", "PUT " + chatPath, "GET /healthz", "POST " + chatPath} {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.ClientBodyTimeout = 100 * time.Millisecond }})
		conn := r.dial()
		_, _ = io.WriteString(conn, line+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 ") {
			t.Errorf("%s: got %q, %v; want an answer and the end of the connection", line, answer, err)
		}
		r.wantUntouched()
	}
}

func TestClientLimits_ClientThatReadsNoStreamIsCut(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.ClientWriteTimeout = 150 * time.Millisecond }})
	r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
		big := chunk(l, `{"content":"`+strings.Repeat("x", 256<<10)+`"}`, "null")
		for q.Context().Err() == nil {
			say(w, big)
		}
	})
	conn := r.dial()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	body := ask("", true, "q")
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	r.decode[0].await(1)
	r.decode[0].awaitEnd(1) // cancelled, because the client does not read
	// net/http flushes what it has left before it closes; that must be bounded like every other write.
	closed := make(chan struct{})
	go func() {
		r.front.Close() // waits for open connections
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("a client that does not read keeps its connection")
	}
	_ = conn.Close()
	<-closed
}

func TestRequest_SeveralAnswersGoToDecodeAlone(t *testing.T) {
	for _, members := range []string{`"n":2`, `"best_of":2`, `"use_beam_search":true`} {
		r := newRig(t, setup{})
		r.wantOK(r.send(with(members+`,"conversation_id":"c"`)), "miss;reason=ineligible_")
		if p, d := len(r.prefill[0].seen()), r.decode[0].seen(); p != 0 || len(d) != 1 || d[0].params() != nil || r.store.Len() != 0 {
			t.Errorf("%s: got %d prefill legs, decode %v, %d tickets", members, p, d, r.store.Len())
		}
	}
	r := newRig(t, setup{})
	r.wantOK(r.sendTo(textPath, `{"model":"m","prompt":["a","b"]}`), "miss;")
	if n := len(r.prefill[0].seen()); n != 0 {
		t.Errorf("got %d prefill legs of a batch", n)
	}
}

func TestTurn_IneligibleRequests(t *testing.T) {
	for members, want := range map[string]string{
		`"prompt_logprobs":1`:        "ineligible_prompt_logprobs",
		`"echo":true`:                "ineligible_echo",
		`"truncate_prompt_tokens":5`: "ineligible_truncate_prompt_tokens",
		`"include_reasoning":false`:  "first_turn",
		`"messages2":1`:              "first_turn",
	} {
		r := newRig(t, setup{})
		r.wantOK(r.send(with(members+`,"conversation_id":"c"`)), "miss;reason="+want)
	}
	r := newRig(t, setup{})
	r.wantOK(r.send(`{"model":"m","conversation_id":"c","messages":"x"}`), "miss;reason=ineligible_non_text_content")
}

func TestAnswer_ParamsAreNotShown(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		p := r.turn("c", 1, stream)
		r.wantOK(p, "miss;")
		r.wantSealed(p)
		if !stream && p.body != wholeAnswer(r.decode[0].seen()[0])+"}" {
			t.Errorf("got %q", p.body)
		}
	})
}
