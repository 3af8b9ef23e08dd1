package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/explain"
	"carryover/server/record"
	"carryover/upstream/fleet"
)

// explain asks what would become of a request; header is names and values in turn. It checks that no engine hears of it and that
// nothing changes.
func (r *rig) explain(path, body string, header ...string) explain.Explanation {
	r.t.Helper()
	headers := map[string][]string{}
	for i := 0; i+1 < len(header); i += 2 {
		headers[header[i]] = append(headers[header[i]], header[i+1])
	}
	raw := json.RawMessage(body)
	if !json.Valid(raw) {
		raw, _ = json.Marshal(body) // a string always can be
	}
	asked, _ := json.Marshal(map[string]any{"path": path, "headers": headers, "body": raw})
	before := r.everything()
	w := httptest.NewRecorder()
	r.server.ExplainHandler().ServeHTTP(w, httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, "/admin/explain", strings.NewReader(string(asked))))
	if after := r.everything(); after != before {
		r.t.Errorf("explaining has changed something: before %s, after %s", before, after)
	}
	var said explain.Explanation
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != http.StatusOK {
		r.t.Fatalf("explain: status %d, %s", w.Code, w.Body)
	}
	if said.Sentence == "" {
		r.t.Errorf("explain has no sentence for %s", said.Verdict)
	}
	return said
}

// everything is what a turn would change.
func (r *rig) everything() string {
	state := map[string]any{"conversations": r.store.Len(), "log": r.log.text()}
	for _, e := range append(append([]*engine{}, r.prefill...), r.decode...) {
		engine := r.engine(e)
		if engine == nil {
			continue
		}
		live := engine.Live()
		state[e.name] = []any{e.requests.Load(), live.InFlight, live.Queued, live.Pins.Waiting, live.State, r.server.Pinned(engine)}
	}
	inflight, clients := r.server.Inflight()
	toBegin, forInstance := r.server.Waiting()
	state["counts"] = []any{inflight, clients, toBegin, forInstance}
	return jsonOf(state)
}

// foreseeable removes from a X-KV-Reuse what nobody can know before the turn.
func foreseeable(reuse string) string {
	return regexp.MustCompile(`;(age|confirmed)=[^;]*`).ReplaceAllString(reuse, "")
}

// agree explains a request and then sends it: the verdict has to come true.
func (r *rig) agree(path, body, want string, header ...string) explain.Explanation {
	r.t.Helper()
	said := r.explain(path, body, header...)
	p := r.sendTo(path, body, header...)
	if got := foreseeable(p.reuse()); got != foreseeable(said.Verdict) || !strings.HasPrefix(got, want) {
		r.t.Errorf("explained as %q (%s), came out as %q, want %q", said.Verdict, said.Sentence, p.reuse(), want)
	}
	if got := p.header.Get("X-Kv-Path"); said.Path == nil || said.Path.Header != got {
		r.t.Errorf("path explained as %+v, came out as %q", said.Path, got)
	}
	return said
}

func TestExplain_AgreesWithWhatHappens(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{probeless: true})
		for n := range 3 { // starts and template are known then
			r.turn("teacher", n+1, stream)
		}
		r.agree(chatPath, ask("c", stream, history(1)...), "miss;reason=first_turn")
		said := r.agree(chatPath, ask("c", stream, history(2)...), "hit;tokens=200;proof=history")
		if len(said.Tickets) != 1 || !said.Tickets[0].Usable || *said.Tickets[0].Offered != 200 || said.Tickets[0].Decode != "decode-0" ||
			!said.Tickets[0].Current || said.Tickets[0].Deadline <= 0 || said.Prefill.Instance != "prefill-0" || said.Pair != "proven" {
			t.Errorf("a hit is explained as %+v", said)
		}
		said = r.agree(chatPath, ask("c", stream, "question 1", "Hello world", "other", "Hello world", "next"),
			"miss;reason=history_rewritten;differs=messages[2].content")
		if said.Tickets[0].Differs != "messages[2].content" || said.Tickets[0].Usable || !strings.Contains(said.Sentence, "messages[2]") {
			t.Errorf("a rewritten history is explained as %+v", said)
		}
		r.agree(chatPath, ask("d", stream, history(3)...), "miss;reason=nothing_stored")
		r.agree(chatPath, ask("", stream, history(3)...), "miss;reason=no_conversation")
		r.agree(chatPath, ask("c", stream, history(3)...), "off", "X-KV-Reuse", "off")
		said = r.agree(chatPath, strings.Replace(ask("c", stream, history(3)...), `{`, `{"n":2,`, 1), "miss;reason=ineligible_n")
		if said.Path.Way != record.WayDecodeOnly || said.Proof.Ineligible != "n" {
			t.Errorf("two choices are explained as %+v", said)
		}
		r.agree(chatPath, strings.Replace(ask("c", stream, history(3)...), `{`, `{"echo":true,`, 1), "miss;reason=ineligible_echo")
	})
}

func TestExplain_ByTokensAgreesWhereThePromptHasIDs(t *testing.T) {
	r := newRig(t, setup{probeless: true, cfg: func(c *server.Config) { byTokens(c); c.ReuseMinTokens = 2 * rigBlock }})
	r.inIDs(nil)
	r.sendIDs("teacher", true, count(1, 100)...) // the incarnations are known then
	prompt := count(1000, 5*rigBlock)
	r.agree(textPath, askIDs("c", true, prompt...), "miss;reason=first_turn")
	prompt = append(append(prompt, outputIDs()...), count(5000, 30)...)
	r.agree(textPath, askIDs("c", true, prompt...), "hit;tokens=409;proof=tokens")
	edited := append(append([]int{}, prompt[:rigBlock+5]...), count(8000, 200)...)
	said := r.agree(textPath, askIDs("c", true, edited...), "miss;reason=below_threshold;differs=prompt.kib[0]")
	if got := *said.Tickets[0].Offered; got != rigBlock {
		t.Errorf("%d tokens are offered, want one block", got)
	}
	short := append(append(count(1, 100), outputIDs()...), 7, 8, 9)
	if said = r.agree(textPath, askIDs("teacher", true, short...), "miss;reason=below_threshold"); said.Verdict != "miss;reason=below_threshold" {
		t.Errorf("a short conversation that is not rewritten is explained as %q", said.Verdict)
	}
	edited = append(append([]int{}, prompt[:3*rigBlock+5]...), count(8000, 200)...)
	r.agree(textPath, askIDs("c", true, edited...), "hit;tokens=240;proof=tokens")
	r.agree(textPath, askIDs("c", true, count(7000, 100)...), "miss;reason=history_rewritten;differs=prompt.kib[0]")
}

func TestExplain_WhatOnlyEnginesKnow(t *testing.T) {
	r := newRig(t, setup{probeless: true})
	if got := r.explain(chatPath, ask("c", true, history(1)...)); got.Verdict != explain.VerdictEngines || got.Proof.Asks != "incarnation" {
		t.Errorf("nothing was read of the engines, and explain says %+v", got)
	}
	r.turn("c", 1, true)
	if got := r.explain(chatPath, ask("c", true, history(2)...)); got.Verdict != explain.VerdictEngines || got.Proof.Asks != "template" {
		t.Errorf("the template was not looked at, and explain says %+v", got)
	}
}

func TestExplain_ShowsTheErrorThatAClientWouldGet(t *testing.T) {
	r := newRig(t, setup{probeless: true, cfg: func(c *server.Config) { c.MaxBodyBytes = 4096 }})
	good := ask("c", true, history(1)...)
	for name, tc := range map[string]struct {
		body   string
		header []string
		code   string
	}{
		"not JSON":           {body: `{"model":`},
		"twice":              {body: `{"model":"m","model":"n"}`},
		"transfer params":    {body: strings.Replace(good, `{`, `{"kv_transfer_params":{"remote_host":"x"},`, 1)},
		"a bad id":           {body: strings.Replace(good, `"c"`, `5.5`, 1)},
		"a bad stream":       {body: strings.Replace(good, `true`, `"yes"`, 1)},
		"another media type": {body: good, header: []string{"Content-Type", "text/plain"}},
		"a coding":           {body: good, header: []string{"Content-Encoding", "gzip"}},
		"too large":          {body: ask("c", true, strings.Repeat("x", 5000))},
	} {
		t.Run(name, func(t *testing.T) {
			said := r.explain(chatPath, tc.body, tc.header...)
			var p reply
			if len(tc.header) == 2 && tc.header[0] == "Content-Type" {
				resp, err := r.client.Post(r.front.URL+chatPath, tc.header[1], strings.NewReader(tc.body))
				if err != nil {
					t.Fatal(err)
				}
				p = r.rest(resp)
			} else {
				p = r.send(tc.body, tc.header...)
			}
			got := parseError(t, p.body)
			if said.Verdict != explain.VerdictRefused || said.Error == nil || said.Error.Status != p.status || said.Error.Code != got.Code || said.Error.Message != got.Message {
				t.Errorf("explained as %q %+v, came out as %d %s", said.Verdict, said.Error, p.status, p.body)
			}
		})
	}
}

// The handler refuses what is no question.
func TestExplain_RefusesWhatIsNoQuestion(t *testing.T) {
	r := newRig(t, setup{probeless: true})
	for _, body := range []string{`{`, `[]`, `{"path":"/v1/models","body":{}}`, `{"bodies":{}}`, `{"headers":{"a":5}}`, `{"headers":{"a":[5]}}`} {
		w := httptest.NewRecorder()
		r.server.ExplainHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/admin/explain", strings.NewReader(body)))
		if parseError(t, w.Body.String()); w.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d", body, w.Code)
		}
	}
}

// A conversation belongs to its tenant's credential: without it nothing of it is found, whatever id is named.
func TestExplain_AConversationIsExplainedWithItsCredentialOnly(t *testing.T) {
	r := newRig(t, setup{probeless: true})
	bearer := []string{"Authorization", "Bearer ada"}
	for n := range 3 {
		r.turn("c", n+1, true, bearer...)
	}
	body := ask("c", true, history(4)...)
	own := r.explain(chatPath, body, bearer...)
	if !strings.HasPrefix(own.Verdict, "hit;") || own.Conversation.Tenant != "credential" {
		t.Fatalf("with the credential: %+v", own)
	}
	for name, header := range map[string][]string{"none": nil, "another": {"Authorization", "Bearer bob"}} {
		other := r.explain(chatPath, body, header...)
		if len(other.Tickets) != 0 || other.Conversation.Hash == own.Conversation.Hash || !strings.HasPrefix(other.Verdict, "miss;reason=nothing_stored") {
			t.Errorf("with %s: %+v", name, other)
		}
	}
}

// What explain says repeats the model's name and nothing else of the request or of what was said before.
func TestExplain_RepeatsNothing(t *testing.T) {
	const canary = "CANARY"
	r := newRig(t, setup{probeless: true})
	secret := func(n int) string {
		body := ask(canary+"id", true, canary+" 1", canary+" 2", canary+" 3")
		if n == 1 {
			body = ask(canary+"id", true, canary+" 1")
		}
		return strings.Replace(body, `{`, `{"guided_`+canary+`":"`+canary+`","tools":[{"type":"function","function":{"name":"`+canary+`"}}],"user":"`+canary+`",`, 1)
	}
	header := []string{"Authorization", "Bearer " + canary, "X-Conversation-Id", canary}
	r.send(secret(1), header...)
	for _, n := range []int{1, 2} {
		if said := jsonOf(r.explain(chatPath, secret(n), header...)); strings.Contains(said, canary) {
			t.Errorf("explain repeats: %s", said)
		}
	}
	p := r.send(secret(2), header...)
	if strings.Contains(p.reuse(), canary) || strings.Contains(r.log.text(), canary) {
		t.Errorf("%q, or the log, repeats what was said", p.reuse())
	}
}

func TestExplain_AnInstanceThatIsGone(t *testing.T) {
	r := newRig(t, setup{probeless: true, decodes: 2})
	for n := range 3 {
		r.turn("c", n+1, true)
	}
	holder := r.decode[0]
	restore := r.without(holder)
	said := r.explain(chatPath, ask("c", true, history(4)...))
	if len(said.Tickets) != 1 || said.Tickets[0].State != "gone" || said.Tickets[0].Why != string(record.ReasonInstanceGone) {
		t.Errorf("the holder is gone, and explain says %+v", said)
	}
	restore()
}

// Explaining a thousand times leaves whose turn it is, and who holds what, as it was.
func TestExplain_ManyTimesChangesNothing(t *testing.T) {
	r := newRig(t, setup{probeless: true, prefills: 2, decodes: 2})
	for n := range 3 {
		r.turn("c", n+1, true)
	}
	body := ask("c", true, history(4)...)
	first := r.explain(chatPath, body)
	for range 50 {
		if again := r.explain(chatPath, body); foreseeable(again.Verdict) != foreseeable(first.Verdict) || again.Prefill.Instance != first.Prefill.Instance {
			t.Fatalf("first %+v, then %+v", first, again)
		}
	}
	r.agree(chatPath, body, "hit;")
}

// outcomes is what a store says that it holds.
type outcomes struct {
	server.Store
	peek convcache.Outcome
}

// Peek implements server.Store.
func (s *outcomes) Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	if s.peek != convcache.Found {
		return nil, s.peek
	}
	return s.Store.Peek(ctx, keys)
}

func TestExplain_WhatTheStoreSays(t *testing.T) {
	for outcome, want := range map[convcache.Outcome]string{
		convcache.Unavailable: "miss;reason=store_unavailable", convcache.Expired: "miss;reason=expired", convcache.Empty: "miss;reason=nothing_stored",
	} {
		store := &outcomes{peek: convcache.Found}
		r := newRig(t, setup{probeless: true, deps: func(d *server.Deps) { store.Store, d.Store = d.Store, store }})
		for n := range 3 {
			r.turn("c", n+1, true)
		}
		store.peek = outcome
		r.agree(chatPath, ask("c", true, history(4)...), want)
	}
}

// What was read of engines grows old, and is read again by turns alone.
func TestExplain_ReadsNothingAnew(t *testing.T) {
	var ahead atomic.Int64
	r := newRig(t, setup{probeless: true, decodes: 2, fleet: func(c *fleet.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}})
	for n := range 3 {
		r.turn("c", n+1, true)
	}
	ahead.Store(int64(time.Minute))
	if said := r.explain(chatPath, ask("c", true, history(4)...)); !strings.HasPrefix(said.Verdict, "hit;") {
		t.Errorf("by what was read last: %+v", said)
	}
}
