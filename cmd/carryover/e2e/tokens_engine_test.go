package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/upstream/vllmsim"
)

// What engines do that the token proof has to notice.

// chatting is a conversation whose answers are checked against a lone instance.
type chatting struct {
	*rig
	id   string
	asks int
	h    history
}

// turn asks the next question and returns the answer, which must be that of a lone
// instance.
func (c *chatting) turn(t *testing.T) *answered {
	t.Helper()
	c.asks++
	c.h.messages = append(c.h.messages, says(c.asks))
	a := c.repeat(t)
	c.h.messages = append(c.h.messages, a.assistant())
	return a
}

// repeat sends the history as it is.
func (c *chatting) repeat(t *testing.T) *answered {
	t.Helper()
	members := object{"model": "sim", "messages": c.h.messages, "max_tokens": 400}
	want, err := alone(t.Context(), c.cfg, "/v1/chat/completions", members)
	noError(t, err)
	members["conversation_id"] = c.id
	a := c.say(t, members)
	if err := same(a, want); err != nil {
		t.Errorf("%s, turn %d (%s): %v", c.id, c.asks, a.reuse(), err)
	}
	return a
}

// want takes a turn and checks what it reused.
func (c *chatting) want(t *testing.T, reuse string) {
	t.Helper()
	if a := c.turn(t); !strings.HasPrefix(noHit(a.reuse()), reuse) {
		t.Errorf("%s, turn %d: X-KV-Reuse %q, want %s", c.id, c.asks, a.reuse(), reuse)
	}
}

// learnt takes turns until one is a hit: the shapes of its requests are known then.
func (c *chatting) learnt(t *testing.T) {
	t.Helper()
	for range 8 {
		if strings.HasPrefix(c.turn(t).reuse(), "hit;") {
			return
		}
	}
	t.Fatal("no hit in eight turns")
}

// tampering is an instance behind a proxy that changes requests and answers.
type tampering struct {
	role            string // whose instances it stands before, prefill's for ""
	request, answer func(path string, body []byte) []byte
}

// front puts the proxy before an instance and returns its URL.
func (p *tampering) front(t *testing.T, instance *vllmsim.Instance) string {
	t.Helper()
	target, err := url.Parse(instance.URL())
	noError(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	relay := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if p.request == nil || r.Out.Body == nil {
				return
			}
			body, _ := io.ReadAll(r.Out.Body) // a test's own client sends it whole
			body = p.request(r.In.URL.Path, body)
			r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
		ModifyResponse: func(resp *http.Response) error {
			if p.answer == nil {
				return nil
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				return err
			}
			body = p.answer(resp.Request.URL.Path, body)
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
			return nil
		},
	}
	front := httptest.NewServer(relay)
	t.Cleanup(front.Close)
	return front.URL
}

// otherID replaces one of the ids that a chat leg carries, behind those of a ticket: an
// engine that takes other ids than it was sent, and says so.
func otherID(path string, body []byte) []byte {
	const member = `"prompt_token_ids":[`
	at := bytes.Index(body, []byte(member))
	if path != "/v1/chat/completions" || at < 0 || bytes.Contains(body, []byte(`[1,-1]`)) {
		return body
	}
	at += len(member)
	end := at + bytes.IndexByte(body[at:], ']')
	ids := bytes.Split(body[at:end], []byte(","))
	ids[len(ids)-20] = []byte("700")
	return slices.Concat(body[:at], bytes.Join(ids, []byte(",")), body[end:])
}

func TestTokenProof_ParityDifferenceExcludesTheShapeOnly(t *testing.T) {
	p := &tampering{answer: func(path string, body []byte) []byte {
		if path != "/tokenize" || !gjson.GetBytes(body, "tokens").IsArray() {
			return body
		}
		n := gjson.GetBytes(body, "count").Int()
		body = bytes.Replace(body, []byte(fmt.Sprintf(`"count":%d`, n)), []byte(fmt.Sprintf(`"count":%d`, n+1)), 1)
		return bytes.Replace(body, []byte(`"tokens":[`), []byte(`"tokens":[7,`), 1)
	}}
	r := startRig(t, rigConfig{tamper: p})
	c := r.talk("parity")
	c.want(t, "miss;reason=first_turn")
	for range 4 {
		c.want(t, "miss;reason=ineligible_unproven;why=shape")
	}
	if n := r.turns.count("WARN tokenize differs from what prefill renders; requests of this shape reuse nothing"); n != 2 {
		t.Errorf("warnings: got %d, want 2, one for each shape", n)
	}
	// Ids need no tokenizing.
	prompt := make([]int, 200)
	for i := range prompt {
		prompt[i] = 300 + i
	}
	for _, want := range []string{"miss;reason=first_turn", "hit;"} {
		body := object{"model": "sim", "prompt": prompt, "max_tokens": 20, "conversation_id": "ids"}
		a, err := r.post(t.Context(), "/v1/completions", nil, encode(body), unwatched)
		if err != nil || !strings.HasPrefix(a.reuse(), want) {
			t.Errorf("X-KV-Reuse %q, want %s (%v)", a.reuse(), want, err)
		}
		prompt = append(prompt, 900, 901, 902)
	}
	r.verifyReads(t)
}

// A client that leaves while the engine is being asked takes nothing with it.
func TestTokenProof_AClientThatLeavesDuringTheProbe(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	entered, answer := make(chan struct{}), make(chan struct{})
	p := &tampering{request: func(_ string, body []byte) []byte {
		select {
		case entered <- struct{}{}: // once
			<-answer
		default:
		}
		return body
	}}
	r := startRig(t, rigConfig{tamper: p})
	messages := speech{says(1)}
	body := encode(object{"model": "sim", "messages": messages, "max_tokens": 400, "conversation_id": "strange"})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = r.post(ctx, "/v1/chat/completions", nil, body, unwatched) // it has left
	}()
	<-entered
	leave()
	<-gone
	close(answer)
	a := r.askAs(t, "main", messages...)
	if turn := r.turns.await(t, a.header.Get("X-Request-Id")); turn.Stored != "yes" {
		t.Errorf("the next client's turn left no ticket: %+v", turn)
	}
	r.verify(t, pins{})
}
