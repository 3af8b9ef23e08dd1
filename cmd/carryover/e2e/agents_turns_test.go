package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// startAgents runs the program in front of a pair that serves agents: with a render endpoint, and a plug-in that tells the ids of answers,
// but for what the members say.
func startAgents(t *testing.T, members string, flags ...string) *rig {
	t.Helper()
	cfg := engineWith(`{"render":true,"output_token_ids":true,"message_params":true}`)
	fill(t, &cfg, []byte(members))
	return startRig(t, rigConfig{cfg: cfg, flags: flags})
}

// agentTurns holds a session of four turns, one of which has the model think and one of which has it call a tool. ask changes each request before
// it is sent.
func (r *rig) agentTurns(t *testing.T, path string, stream bool, ask func(turn int, header http.Header, body object)) (answers []*agentAnswer) {
	t.Helper()
	k := newAgentTalk(1, map[string]int{pathMessages: 0, pathResponses: 1}[path])
	k.tools, k.thoughts, k.inline, k.parts = true, true, false, true
	for turn, order := range []string{"", " THINK", ` CALL lookup {"b": 1,   "a":"é"}`, ""} {
		switch { // the calls of the last answer are answered first
		case k.results == nil:
			k.say(longText(turn) + order)
		case path == pathResponses:
			k.history, k.results = append(k.history, k.results...), nil
		default:
			k.history, k.results = append(k.history, object{"role": "user", "content": k.results}), nil
		}
		header, body := http.Header{}, object{"model": "sim", "stream": stream}
		if path == pathResponses {
			k.response(header, body)
			delete(body, "max_output_tokens")
		} else {
			k.message(header, body)
			body["max_tokens"] = 400
		}
		ask(turn, header, body)
		a, err := r.askAgent(t.Context(), path, header, body)
		if err != nil || a.status != http.StatusOK || !a.over {
			t.Fatalf("turn %d: %v, status %d, over %v: %.600s", turn+1, err, a.status, a.over, a.raw)
		}
		k.heard(a)
		answers = append(answers, a)
	}
	return answers
}

// say adds a question.
func (k *agentTalk) say(text string) {
	if k.path == pathResponses {
		k.history = append(k.history, object{"type": "message", "role": "user", "content": text})
		return
	}
	k.history = append(k.history, object{"role": "user", "content": []any{object{"type": "text", "text": text}}})
}

// agentPlainly replaces what differs between any two answers: ids, signatures, times, and the seconds of a response.
func agentPlainly(raw []byte) string {
	s := regexp.MustCompile(`"(id|item_id|call_id|signature)":"[^"]*"`).ReplaceAllString(string(raw), `"$1":"…"`)
	return regexp.MustCompile(`"(created_at|completed_at)":\d+`).ReplaceAllString(s, `"$1":0`)
}

// Turns of either API reuse the KV of the turn before, decode computes nothing of their prompts, and what a client gets is what a stock
// engine sends. The requests are compressed, as Codex sends them.
func TestAgents_TurnsReuseAndShowNothing(t *testing.T) {
	for name, plugIn := range map[string]bool{"plug-in": true, "stock": false} {
		for _, path := range []string{pathMessages, pathResponses} {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s%s/stream %v", name, path, stream), func(t *testing.T) {
					r := startAgents(t, fmt.Sprintf(`{"output_token_ids":%t,"message_params":%[1]t}`, plugIn))
					got := r.agentTurns(t, path, stream, func(_ int, h http.Header, _ object) { h.Set("Content-Encoding", "zstd") })
					want := r.agentTurns(t, path, stream, func(_ int, h http.Header, _ object) { h.Set("X-KV-Reuse", "off") })
					hits := 0
					for i, a := range got {
						if a, b := agentPlainly([]byte(untold(a.raw))), agentPlainly([]byte(untold(want[i].raw))); a != b {
							t.Errorf("turn %d:\ngot  %s\nwant %s", i+1, a, b)
						}
						if id := a.header.Get("X-Request-Id"); path == pathMessages && a.header.Get("Request-Id") != id {
							t.Errorf("turn %d: request-id %q, want %q", i+1, a.header.Get("Request-Id"), id)
						}
						if strings.Contains(string(a.raw), "kv_transfer_params\":{") || strings.Contains(string(a.raw), "token_ids") {
							t.Errorf("turn %d shows what it must not: %s", i+1, a.raw)
						}
						if strings.HasPrefix(a.reuse(), "hit;tokens=") {
							hits++
						} else if i > 0 && (plugIn || path == pathResponses) {
							t.Errorf("turn %d: %s, want a hit", i+1, a.reuse())
						}
					}
					if plugIn || path == pathResponses {
						if n := r.atDecode("computed_tokens"); n > len(got)+len(want) { // the last of a prompt, as ever
							t.Errorf("decode computed %d tokens of prompts, want one of each", n)
						}
					} else if hits > 0 {
						t.Errorf("%d hits, but stock engines tell nothing of their Messages", hits)
					}
					r.verifyReads(t)
				})
			}
		}
	}
}

// Ids prove, so that a ticket serves a turn of another API.
func TestAgents_ATicketServesEveryAPI(t *testing.T) {
	r := startAgents(t, `{}`)
	say := func(role, text string) any { return object{"role": role, "content": text} }
	ask := func(path string, hits bool, body object) *answered {
		body["model"], body["conversation_id"] = "sim", "one"
		a := r.must(t, path, nil, body)
		if a.status != http.StatusOK || strings.HasPrefix(a.reuse(), "hit;tokens=") != hits {
			t.Errorf("%s: %d %s, hits: %v: %s", path, a.status, a.reuse(), hits, a.raw)
		}
		return a
	}
	said := []any{say("user", longText(1))}
	first := ask("/v1/chat/completions", false, object{"max_tokens": 60, "messages": said})
	said = append(said, say("assistant", first.content), say("user", longText(2)))
	second := ask(pathMessages, true, object{"max_tokens": 60, "messages": said, "metadata": object{}})
	said = append(said, say("assistant", gjson.GetBytes(second.raw, "content.0.text").String()), say("user", longText(3)))
	ask(pathResponses, true, object{"max_output_tokens": 60, "input": said})
	r.verifyReads(t)
}

// Decode alone has to understand forwarded ids: prefill computes a rendered prompt as a text completion.
func TestAgents_WithoutIDsAtDecode(t *testing.T) {
	prefill := engineWith(`{"render":true,"output_token_ids":true,"message_params":true}`)
	decode := prefill
	decode.PromptTokenIDs = false
	for i, want := range []string{"miss;reason=ineligible_unproven;why=probe", "hit;tokens="} {
		r := startRig(t, rigConfig{prefill: []vllmsim.Config{prefill}, decode: []vllmsim.Config{decode}})
		for turn, a := range r.agentTurns(t, pathMessages, true, func(int, http.Header, object) {}) {
			if turn > 0 && !strings.HasPrefix(noHit(a.reuse()), want) {
				t.Errorf("pair %d, turn %d: %s, want %s", i, turn+1, a.reuse(), want)
			}
		}
		r.verifyReads(t)
		prefill, decode = decode, prefill
	}
}

// Without a render endpoint the legs are native, nothing is offered, and the reason says so. A render server beside the engines tells the ids in
// the place of prefill.
func TestAgents_WithoutRender(t *testing.T) {
	for _, path := range []string{pathMessages, pathResponses} {
		for _, beside := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/a server beside %v", path, beside), func(t *testing.T) {
				var flags []string
				if beside {
					flags = []string{"--render", testrig.StartInstance(t, engineWith(`{"render":true}`), "").URL()}
				}
				r := startAgents(t, `{"render":false}`, flags...)
				for turn, a := range r.agentTurns(t, path, true, func(int, http.Header, object) {}) {
					want := "miss;reason=ineligible_unproven;why=render"
					if beside {
						want = "hit;tokens="
					}
					if reuse := noHit(a.reuse()); !strings.HasPrefix(reuse, want) && (turn > 0 || reuse != "miss;reason=first_turn") {
						t.Errorf("turn %d: %s, want %s", turn+1, a.reuse(), want)
					}
				}
				if n := r.atPrefill("computed_tokens"); n == 0 {
					t.Error("prefill has computed nothing")
				}
				if n := r.atDecode("computed_tokens"); n > 4 {
					t.Errorf("decode computed %d tokens of prompts, want one of each", n)
				}
				r.verifyReads(t)
			})
		}
	}
}

// Tokens are counted by a prefill instance, as the API has it. What is refused has the shape of the API, and reaches no engine.
func TestAgents_CountTokens(t *testing.T) {
	r := startAgents(t, `{}`)
	ask := func(path string, header http.Header, body string) *answered {
		a, err := r.post(t.Context(), pathMessages+path, header, []byte(body), unwatched)
		noError(t, err)
		return a
	}
	body := `{"model":"sim","messages":[{"role":"user","content":"How many are there?"}]}`
	const count = "/count_tokens?beta=true"
	a := ask(count, http.Header{"X-Api-Key": {"k"}}, body)
	want, err := (&rig{base: r.prefill[0].URL(), client: r.client}).post(t.Context(), pathMessages+"/count_tokens", nil, []byte(body), unwatched)
	if err != nil || a.status != http.StatusOK || gjson.GetBytes(a.raw, "input_tokens").Int() != gjson.GetBytes(want.raw, "input_tokens").Int() {
		t.Errorf("got %d %s, want %s (%v)", a.status, a.raw, want.raw, err)
	}
	for body, status := range map[string]int{
		`{"model":"other","messages":[]}`: 404, `{"model":"sim"}`: 400, `{"model":"sim","messages":[],"kv_transfer_params":{"remote_host":"x"}}`: 400,
	} {
		for _, path := range []string{count, ""} {
			if a := ask(path, nil, body); a.status != status || gjson.GetBytes(a.raw, "type").String() != "error" {
				t.Errorf("want %d: %d %s", status, a.status, a.raw)
			}
		}
	}
	if n := r.sum("")["requests"]; n != 0 {
		t.Errorf("%d engine requests, want 0", n)
	}
}
