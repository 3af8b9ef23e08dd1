package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/connector/lmcache"
	"carryover/upstream/connector/storage"
)

// announcement is KV whose arrival a test announces.
type announcement func(context.Context) error

func (a announcement) Ready(ctx context.Context) error { return a(ctx) }
func (announcement) Close()                            {}

// lmcacheRig is a rig whose engines run LMCache. Its prefill begins each answer with this text, decode goes on with "yz".
func lmcacheRig(t *testing.T, text, finish string, ready announcement, change func(*lmcache.Connector), s setup) *rig {
	t.Helper()
	attempts := 0
	c := &lmcache.Connector{
		Expect:    func(string, int) upstream.Arrival { return ready },
		NewID:     func() string { attempts++; return fmt.Sprint("attempt-", attempts) },
		Receivers: map[string]lmcache.Receiver{}, ChunkTokens: 256,
	}
	s.deps = func(d *server.Deps) { d.Connector = c }
	r := newRig(t, s)
	for _, e := range r.deps.Fleet.Engines(upstream.RoleDecode) {
		c.Receivers[e.Instance().Authority()] = lmcache.Receiver{Host: "kv", InitPorts: []int{7300}, AllocPorts: []int{7400}}
	}
	if change != nil {
		change(c)
	}
	for _, e := range r.prefill {
		e.tokenize = func(string) string { return `{"tokens":[1,2,3],"max_model_len":100}` }
		e.always(func(w http.ResponseWriter, _ *http.Request, l leg) {
			answerJSON(w, fmt.Sprintf(`{"id":"cmpl-%s","created":5,"model":"m","choices":[{"index":0,"text":%q,"finish_reason":%q,"token_ids":[7]}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4},"kv_transfer_params":null}`, l.id(), text, finish))
		})
	}
	for _, e := range r.decode {
		e.always(goesOn)
	}
	return r
}

// goesOn is a decode instance that says "yz", as the API that it is asked at.
func goesOn(w http.ResponseWriter, r *http.Request, l leg) {
	if l.uri != textPath {
		decodes(w, r, l)
		return
	}
	if l.streams() {
		say(w, `{"id":"cmpl-`+l.id()+`","created":6,"model":"m","choices":[{"index":0,"text":"y","finish_reason":null}]}`,
			`{"id":"cmpl-`+l.id()+`","created":6,"model":"m","choices":[{"index":0,"text":"z","finish_reason":"length"}]}`, "[DONE]")
		return
	}
	answerJSON(w, `{"id":"cmpl-`+l.id()+`","created":6,"model":"m","choices":[{"index":0,"text":"yz","finish_reason":"length"}],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}`)
}

// textOf is the text of an answer of either API, in events or in one piece.
func textOf(t *testing.T, body string) (all string) {
	t.Helper()
	for part := range strings.SplitSeq(body, "\n\n") {
		data := strings.TrimPrefix(part, "data: ")
		if data == "" || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Text           string
				Delta, Message struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		for _, c := range chunk.Choices {
			all += c.Text + c.Delta.Content + c.Message.Content
		}
	}
	return all
}

func arrived(context.Context) error { return nil }

func TestLMCache_OneAnswerOfTwoEngines(t *testing.T) {
	for _, stream := range []bool{true, false} {
		r := lmcacheRig(t, "x", "length", arrived, nil, setup{})
		for path, body := range map[string]string{
			chatPath: `{"model":"m","messages":[{"role":"user","content":"q"}],"max_completion_tokens":3,"stream":` + fmt.Sprint(stream) + `}`,
			textPath: `{"model":"m","prompt":"q","max_tokens":3,"stream":` + fmt.Sprint(stream) + `}`,
		} {
			p := r.sendTo(path, body)
			r.wantOK(p, "miss;reason=no_conversation")
			if got := textOf(t, p.body); got != "xyz" || stream != strings.HasSuffix(p.body, "data: [DONE]\n\n") {
				t.Errorf("%s: got %q of %s, want xyz", path, got, p.body)
			}
		}
		for _, l := range r.prefill[0].seen() {
			if l.uri != textPath || !strings.Contains(l.body, `"prompt":[1,2,3]`) || !strings.Contains(l.body, `"max_tokens":1,`) && !strings.Contains(l.body, `"max_tokens":1}`) || strings.Contains(l.body, "messages") || !strings.Contains(l.body, `"receiver_init_port":[7300]`) {
				t.Errorf("prefill is asked at %s for %s", l.uri, l.body)
			}
		}
		for _, l := range r.decode[0].seen() {
			if l.uri != textPath || !strings.Contains(l.body, `"prompt":[1,2,3,7]`) || !strings.Contains(l.body, `"max_tokens":2`) || len(l.params()) != 1 {
				t.Errorf("decode is asked at %s for %s", l.uri, l.body)
			}
		}
	}
}

// KV that the client's leg can't take is taken by a leg of our own: decode gives the whole answer itself.
func TestLMCache_AllKVIsTaken(t *testing.T) {
	for name, row := range map[string]struct{ text, finish string }{
		"prefill's token ends the answer": {"", "stop"},
		"a token without text":            {"", "length"},
	} {
		for _, stream := range []bool{true, false} {
			r := lmcacheRig(t, row.text, row.finish, arrived, nil, setup{})
			p := r.send(ask("", stream, "q"))
			r.wantOK(p, "miss;reason=no_conversation")
			if got := textOf(t, p.body); got != "Hello world" {
				t.Errorf("%s: got %q, want decode's answer", name, got)
			}
			for _, l := range r.decode[0].await(2) {
				tagged := strings.Contains(l.body, "lmcache.tag.attempt")
				if l.rescues() != tagged || tagged && (!strings.Contains(l.body, `"prompt":[1,2,3,3]`) || l.streams()) {
					t.Errorf("%s: decode saw %s, want one leg that finds the KV, and the client's, which does not", name, l.body)
				}
			}
			r.decode[0].awaitEnd(2)
		}
	}
}

func TestLMCache_KVThatIsNeverAnnounced(t *testing.T) {
	over := make(chan struct{})
	defer close(over) // what waits for KV that comes late
	never := func(ctx context.Context) error {
		select {
		case <-over:
			return context.Canceled
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	short := setup{cfg: func(c *server.Config) { c.HandoverBudget, c.PrefillFailure = 50*time.Millisecond, turn.PrefillError }}
	r := lmcacheRig(t, "x", "length", never, nil, short)
	for _, stream := range []bool{false, true} {
		r.wantError(r.send(ask("", stream, "q")), http.StatusGatewayTimeout, "prefill_timeout")
	}
	if n := len(r.decode[0].seen()); n != 0 {
		t.Errorf("decode was asked %d times", n)
	}
	short.cfg = func(c *server.Config) { c.HandoverBudget = 50 * time.Millisecond }
	r = lmcacheRig(t, "x", "length", never, nil, short)
	p := r.send(ask("", false, "q"))
	if r.wantOK(p, "miss;reason=no_conversation"); textOf(t, p.body) != "Hello world" {
		t.Errorf("got %q, want the answer of a decode instance that computes", p.body)
	}
}

// The KV is at one decode instance, so that another gets what another attempt of prefill has sent it.
func TestLMCache_ADecodeInstanceThatRefuses(t *testing.T) {
	r := lmcacheRig(t, "x", "length", arrived, nil, setup{deadDecodes: 1})
	p := r.send(ask("", false, "q"))
	if r.wantOK(p, "miss;reason=no_conversation"); textOf(t, p.body) != "xyz" {
		t.Errorf("got %q", p.body)
	}
	legs := r.prefill[0].seen() // each attempt has an id and a salt
	if len(legs) != 2 || !strings.Contains(legs[0].body, `"attempt-1"`) || !strings.Contains(legs[1].body, `"attempt-3"`) {
		t.Errorf("prefill saw %v, want two attempts, each of its own id", legs)
	}
}

func TestLMCache_WhatGoesToDecodeAloneSaysWhy(t *testing.T) {
	for why, change := range map[string]func(*lmcache.Connector){
		"no_receiver":     func(c *lmcache.Connector) { c.Receivers = nil },
		"prompt_too_long": func(c *lmcache.Connector) { c.MaxPromptTokens = 2 },
	} {
		r := lmcacheRig(t, "x", "length", arrived, change, setup{})
		p := r.send(ask("", false, "q"))
		if got := p.header.Get("X-KV-Path"); !strings.Contains(got, "reason="+why) || textOf(t, p.body) != "Hello world" || len(r.prefill[0].seen()) != 0 {
			t.Errorf("got %q and %q, want decode alone because of %s", got, p.body, why)
		}
	}
}

func TestLMCacheStorage_BothLegsAreTheClientsOwn(t *testing.T) {
	for _, dead := range []int{0, -1} { // no prefill instance answers: decode has what is stored
		r := newRig(t, setup{deadPrefills: dead, deps: func(d *server.Deps) { d.Connector = storage.Connector{} }})
		body := ask("", true, "q")
		p := r.send(body)
		if p.status != http.StatusOK || textOf(t, p.body) != "Hello world" {
			t.Errorf("got %d %q, want decode's answer", p.status, p.body)
		}
		if legs := r.decode[0].seen(); len(legs) != 1 || legs[0].body != body {
			t.Errorf("decode saw %v, want the client's own request", legs)
		}
		if dead == 0 {
			if legs := r.prefill[0].seen(); len(legs) != 1 || !strings.Contains(legs[0].body, `"max_tokens":1`) || legs[0].params() != nil {
				t.Errorf("prefill saw %v, want one token and no params", legs)
			}
		}
	}
}
