//go:build e2e

package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
)

const pathChat, pathText = "/v1/chat/completions", "/v1/completions"

// agentLimit is the length of answers. It is more than prefill computes by itself in place of reading (readable).
const agentLimit = readable

// agentTurns is how many turns each dialogue has.
const agentTurns = 3

// agents is line 11: the Messages and Responses APIs. Prefill is started anew with a render endpoint.
func (s *suite) agents(t *testing.T) {
	t.Helper()
	noError(t, s.script(t, "down", config.RolePrefill))
	took := s.start(t, config.RolePrefill, "--enable-scale-out")
	s.report.line(t, "11", "hand-overs between the endpoints of two engines", s.agentLegs)
	s.report.line(t, "11", "turns of agents reuse what their tokens allow", func(t *testing.T) string {
		return fmt.Sprintf("%s; prefill up in %s", s.agentTalks(t), seconds(took))
	})
}

// agentDialogue has questions and answers in turn, the first of which says what the service is about.
type agentDialogue struct {
	name   string
	path   string
	stream bool
	said   []string
}

// agentBody is a dialogue as a request of an API; ids are the prompt of a text completion.
func agentBody(path string, said []string, ids []int, limit int) object {
	var messages []any
	for i, text := range said {
		messages = append(messages, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": text})
	}
	body := object{"model": model, "temperature": 0, "max_tokens": limit}
	switch path {
	case pathText:
		body["prompt"] = ids
	case pathResponses:
		delete(body, "max_tokens")
		body["max_output_tokens"], body["input"] = limit, messages
	default:
		body["messages"] = messages
	}
	return body
}

// text is what an answer says, of whichever API.
func (a *agentAnswer) text() string {
	text := a.content
	for _, part := range a.parts {
		if said, ok := part["text"].(string); ok {
			text += said
		}
		if contents, ok := part["content"].([]any); ok {
			text += gjson.GetBytes(encode(contents), "0.text").String()
		}
	}
	return text
}

// askAgentAt asks an engine, or the program, for an answer that must come.
func (s *suite) askAgentAt(t *testing.T, base, path string, body object) *agentAnswer {
	t.Helper()
	a, err := (&rig{base: base, client: s.client}).askAgent(t.Context(), path, http.Header{}, body)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("POST %s%s: %v, %d: %.600s", base, path, err, a.status, a.raw)
	}
	return a
}

// rendered are the ids of a prompt.
func (s *suite) rendered(t *testing.T, path string, body object) []int {
	t.Helper()
	resp, err := s.client.Post(s.prefill.url+path+"/render", "application/json", bytes.NewReader(encode(body)))
	noError(t, err)
	defer resp.Body.Close()
	var answer struct {
		IDs []int `json:"token_ids"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.IDs) == 0 {
		t.Fatalf("render: status %d, %d ids, %v", resp.StatusCode, len(answer.IDs), err)
	}
	return answer.IDs
}

// agentLegs hands a prompt over from each kind of prefill leg to each kind of decode leg, on the engines directly: decode must compute
// nothing of it, and answer what a lone engine does.
func (s *suite) agentLegs(t *testing.T) string {
	rows := []struct {
		prefill, decode string
		ids, stream     bool
	}{
		{pathMessages, pathMessages, false, false},
		{pathChat, pathMessages, true, true},
		{pathText, pathMessages, true, true},
		{pathMessages, pathChat, true, false},
		{pathResponses, pathResponses, false, false},
		{pathResponses, pathResponses, false, true},
		{pathText, pathResponses, true, true},
		{pathChat, pathResponses, true, false},
	}
	tokens := 0
	for i, row := range rows {
		said := []string{fmt.Sprintf("%s Question %d: what is read twice?", about, i)}
		salt := rand.Text()
		want := s.askAgentAt(t, s.prefill.url, row.decode, asked{body: agentBody(row.decode, said, nil, 16)}.with(object{"cache_salt": rand.Text()}).body)
		var ids []int
		if row.ids {
			ids = s.rendered(t, pathMessages, agentBody(pathMessages, said, nil, 16))
		}
		leg := func(base, path string, limit int, params object, more object) *agentAnswer {
			if row.ids && path != pathText {
				params["prompt_token_ids"] = ids
			}
			body := agentBody(path, said, ids, limit)
			maps.Copy(body, object{"cache_salt": salt, "kv_transfer_params": params})
			maps.Copy(body, more)
			return s.askAgentAt(t, base, path, body)
		}
		first := leg(s.prefill.url, row.prefill, 1, firstParams(), nil)
		handOver := object{}
		if err := json.Unmarshal([]byte(gjson.GetBytes(first.raw, paramsName).Raw), &handOver); err != nil {
			t.Fatalf("%s: prefill's params: %v in %.300s", row.prefill, err, first.raw)
		}
		before := s.decode.counted(t)
		got := leg(s.decode.url, row.decode, 16, handOver, object{"stream": row.stream})
		from := s.decode.since(t, before, 1)
		if from[computed] != 0 || from[external] == 0 {
			t.Errorf("%s, then %s: decode read %d tokens and computed %d, want 0", row.prefill, row.decode, from[external], from[computed])
		}
		if got.text() != want.text() {
			t.Errorf("%s, then %s: %q, want %q", row.prefill, row.decode, got.text(), want.text())
		}
		tokens += from[external]
	}
	return fmt.Sprintf("%d pairs of legs, %d tokens read, 0 computed", len(rows), tokens)
}

const paramsName = "kv_transfer_params"

// firstParams are those of a prefill leg without a ticket.
func firstParams() object {
	return object{"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil, "remote_block_ids": nil, "remote_host": nil, "remote_port": nil}
}

// agentTalks holds conversations through the program.
func (s *suite) agentTalks(t *testing.T) string {
	p := s.launch(t, "--hand-back-after", "30s")
	turns, later, hits, offered, computedByDecode := 0, 0, 0, 0, 0
	misses := map[string]int{}
	for _, path := range []string{pathMessages, pathResponses} {
		for _, stream := range []bool{false, true} {
			k := agentDialogue{name: fmt.Sprintf("%s, stream %v", path, stream), path: path, stream: stream}
			session, question := rand.Text(), about
			for turn := 1; turn <= agentTurns; turn++ {
				k.said = append(k.said, fmt.Sprintf("%s %s Question %d: what is kept, and where?", question, session, turn))
				question = strings.Join(strings.Fields(about)[:40], " ")
				body := agentBody(path, k.said, nil, agentLimit)
				body["stream"] = stream
				want := s.askAgentAt(t, s.prefill.url, path, asked{body: body}.with(object{"cache_salt": rand.Text()}).body)
				before := s.decode.counted(t)
				began := time.Now()
				got := s.askAgentAt(t, p.base, path, asked{body: body}.with(object{"conversation_id": session}).body)
				took := time.Since(began)
				from := s.decode.since(t, before, want.prompt)
				if err := sameSaid(got, want); err != nil {
					t.Errorf("%s, turn %d (%s): %v", k.name, turn, got.reuse(), err)
				}
				if bytes.Contains(got.raw, []byte(`"kv_transfer_params":{`)) {
					t.Errorf("%s, turn %d shows params: %.300s", k.name, turn, got.raw)
				}
				turns++
				computedByDecode += from[computed]
				reuse := parseReuse(got.reuse())
				if turn > 1 {
					later++
					if reuse.hit {
						hits, offered = hits+1, offered+reuse.tokens
					} else {
						misses[reuse.reason]++
					}
				}
				t.Logf("%-24s turn %d: %4d tokens, decode %4d local %4d external %4d computed, %.2f s, %s", k.name, turn, want.prompt,
					from[cached], from[external], from[computed], took.Seconds(), got.reuse())
				k.said = append(k.said, got.text())
			}
		}
	}
	if computedByDecode != 0 {
		t.Errorf("decode computed %d tokens of prompts, want 0", computedByDecode)
	}
	if hits != later {
		t.Errorf("hits: got %s, want all: each prompt begins with that before it; misses %v", share(hits, later), slices.Sorted(maps.Keys(misses)))
	}
	return fmt.Sprintf("%d turns, 0 computed by decode, hits %s of later turns with %d tokens", turns, share(hits, later), offered)
}
