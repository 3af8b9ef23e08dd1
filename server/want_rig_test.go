package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream"
)

// checkLegs checks what must hold whatever the test did: a ticket reaches one prefill leg and a hand-over one decode leg,
// ever; each leg has its own request id, an explicit length, and headers from the allow-list only.
func (r *rig) checkLegs() {
	tickets, handovers, ids := map[string]int{}, map[string]int{}, map[string]int{}
	for _, engines := range [][]*engine{r.prefill, r.decode} {
		for _, e := range engines {
			for _, l := range e.seen() {
				r.checkLeg(e, l)
				ids[e.role.String()+" "+l.id()]++
				switch p := l.params(); {
				case l.rescues(): // may take what another leg has taken, since no other request finds what it reads
					if !strings.Contains(l.body, `~`) || l.streams() || !strings.Contains(l.body, `"max_tokens":1`) && !strings.Contains(l.body, `"max_output_tokens":1`) {
						r.t.Errorf("%s got the rescue %s, want one token under a salt of its own", e.name, l.body)
					}
				case e.role == upstream.RolePrefill && p["remote_request_id"] != nil:
					tickets[l.ticket()]++
				case e.role == upstream.RoleDecode && p != nil && p["lmcache.tag.attempt"] == nil:
					handovers[fmt.Sprint(p["remote_request_id"])]++
				}
			}
		}
	}
	for _, id := range r.refused {
		tickets[id]--
	}
	for what, counts := range map[string]map[string]int{"ticket": tickets, "hand-over": handovers, "request id": ids} {
		for name, n := range counts {
			if n != 1 {
				r.t.Errorf("%s %s was used %d times, want once", what, name, n)
			}
		}
	}
}

func (r *rig) checkLeg(e *engine, l leg) {
	for name := range l.header {
		switch name {
		case "Content-Type", "Content-Length", "Accept-Encoding", "User-Agent", "X-Request-Id", "Authorization":
		case "X-Data-Parallel-Rank": // of a plan that names one
		case "Traceparent", "Tracestate": // of a trace, see wellFormed
			if !wellFormed(l.header) {
				r.t.Errorf("%s saw the trace context %q, %q", e.name, l.header["Traceparent"], l.header["Tracestate"])
			}
		default:
			r.t.Errorf("%s saw header %s: %q, which is not on the allow-list", e.name, name, l.header[name])
		}
	}
	if l.length != int64(len(l.body)) || len(l.framing) > 0 {
		r.t.Errorf("%s saw a body of %d bytes framed as length %d, coding %q", e.name, len(l.body), l.length, l.framing)
	}
	p := l.params()
	if p == nil || p["disagg_spec"] != nil || p["lmcache.tag.attempt"] != nil { // of LMCache
		return
	}
	if prefill := e.role == upstream.RolePrefill; p["do_remote_decode"] != prefill || p["do_remote_prefill"] == prefill {
		r.t.Errorf("%s got params for the other direction: %v", e.name, p)
	}
}

// wantOK checks a complete answer and how it came by its prompt.
func (r *rig) wantOK(p reply, reuse string) {
	r.t.Helper()
	if p.status != http.StatusOK || p.err != nil {
		r.t.Fatalf("got status %d, err %v, body %q; want 200 and a clean end", p.status, p.err, p.body)
	}
	if !strings.HasPrefix(p.reuse(), reuse) {
		r.t.Errorf("got X-KV-Reuse %q, want %q", p.reuse(), reuse)
	}
	r.wantHeaders(p)
}

// wantError checks that an error is shaped as OpenAI's are and gives nothing away.
func (r *rig) wantError(p reply, status int, code string) errorBody {
	r.t.Helper()
	if p.err != nil {
		r.t.Fatalf("got %v, want status %d", p.err, status)
	}
	e := parseError(r.t, p.body)
	if p.status != status || e.Code != code {
		r.t.Errorf("got status %d, code %q (%s), want %d, %q", p.status, e.Code, e.Message, status, code)
	}
	if got := p.header.Get("Content-Type"); got != "application/json" {
		r.t.Errorf("got content type %q of an error", got)
	}
	if p.header.Get("X-Request-Id") == "" {
		r.t.Error("an error without X-Request-Id")
	}
	r.wantSealed(p)
	return e
}

// errorBody is OpenAI's error object.
type errorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func parseError(t *testing.T, body string) errorBody {
	t.Helper()
	var e struct {
		Error errorBody `json:"error"`
	}
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == "" {
		t.Fatalf("got error body %q (%v), want OpenAI's shape", body, err)
	}
	if !strings.Contains(body, `"param":`) {
		t.Errorf("got error body %q, want a param, if only null", body)
	}
	return e.Error
}

// wantSealed checks that nothing of the far side shows.
func (r *rig) wantSealed(p reply) {
	r.t.Helper()
	text := p.body + fmt.Sprint(p.header)
	for _, secret := range []string{"127.0.0.", engineHost, engineID, "dial tcp", "EOF", "context ", "goroutine", "prefill-0", "decode-0", "dead-"} {
		if strings.Contains(text, secret) {
			r.t.Errorf("the client sees %q in %s", secret, text)
		}
	}
}

func (r *rig) wantHeaders(p reply) {
	r.t.Helper()
	for _, name := range []string{"X-Request-Id", "X-Kv-Reuse", "Server-Timing"} {
		if len(p.header[name]) != 1 {
			r.t.Errorf("got %s %q, want one value", name, p.header[name])
		}
	}
}

func wantRetryAfter(t *testing.T, p reply, want string) {
	t.Helper()
	if got := p.header.Get("Retry-After"); got != want {
		t.Errorf("got Retry-After %q, want %q", got, want)
	}
}

// ways runs a test for a stream and for a whole answer.
func ways(t *testing.T, test func(t *testing.T, stream bool)) {
	t.Helper()
	for _, stream := range []bool{true, false} {
		t.Run(map[bool]string{true: "stream", false: "whole"}[stream], func(t *testing.T) { test(t, stream) })
	}
}
