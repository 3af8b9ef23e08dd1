package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/upstream/vllmsim"
)

// What a client sees of the token proof: nothing, or the ids if it asked for them.

// startTokens runs the program on equal instances, with the token proof and without
// releases.
func startTokens(t *testing.T, prefills, decodes int, change func(*vllmsim.Config), flags ...string) *rig {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	change(&cfg)
	c := rigConfig{flags: append([]string{"--routing-prefill", "round_robin", "--routing-decode", "round_robin"}, flags...)}
	for range prefills {
		c.prefill = append(c.prefill, cfg)
	}
	for range decodes {
		c.decode = append(c.decode, cfg)
	}
	return startRig(t, c)
}

// plainly replaces in an answer what differs between any two runs.
func plainly(raw []byte) string {
	raw = regexp.MustCompile(`"id":"[^"]*"`).ReplaceAll(raw, []byte(`"id":"…"`))
	return string(regexp.MustCompile(`"created":\d+`).ReplaceAll(raw, []byte(`"created":0`)))
}

// seen is one conversation of four turns as its client saw it.
type seen struct {
	raw  []string
	hits int
}

// see holds a conversation of four turns with that header.
func (r *rig) see(t *testing.T, api string, shape map[string]any, stream bool, header http.Header) seen {
	t.Helper()
	var s seen
	h := &history{}
	for turn := 1; turn <= 4; turn++ {
		members := map[string]any{"model": "sim", "max_tokens": 400, "stream": stream}
		maps.Copy(members, shape)
		ask, _ := members["ask"].(string)
		delete(members, "ask")
		if !stream {
			delete(members, "stream_options")
		}
		path := "/v1/chat/completions"
		if api == talkText {
			path = "/v1/completions"
			h.prompt += fmt.Sprintf("\n%s %d", longText(turn), turn)
			members["prompt"] = h.prompt
			if members["logprobs"] != nil {
				members["logprobs"] = 2
				delete(members, "top_logprobs")
			}
		} else {
			h.messages = append(h.messages, question(fmt.Sprintf("%s. %s", longText(turn), ask)))
			members["messages"] = h.messages
		}
		if header.Get("X-KV-Reuse") == "" {
			members["conversation_id"] = string(encode(shape)) + api + fmt.Sprint(stream)
		}
		a, err := r.post(t.Context(), path, header, encode(members), unwatched)
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("turn %d: %v, status %d: %s", turn, err, a.status, a.raw)
		}
		if strings.HasPrefix(a.reuse(), "hit;") {
			s.hits++
		}
		s.raw = append(s.raw, untold(a.raw))
		h.prompt += a.content
		h.messages = append(h.messages, a.assistant())
		for range a.tools {
			h.messages = append(h.messages, encode(map[string]string{"role": "tool", "tool_call_id": "1", "content": "found"}))
		}
	}
	return s
}

func sameBytes(t *testing.T, got, want []string) {
	t.Helper()
	for i := range got {
		if got[i] == want[i] {
			continue
		}
		a, b := strings.Split(got[i], "\n\n"), strings.Split(want[i], "\n\n")
		at := 0
		for at < min(len(a), len(b))-1 && a[at] == b[at] {
			at++
		}
		t.Fatalf("turn %d differs at event %d of %d and %d:\ngot  %.700s\nwant %.700s", i+1, at, len(a), len(b), a[at], b[at])
	}
}

// With the plug-in decode is not asked for ids in streams, and there is nothing to put
// back.
func TestTokenProof_PlugInSparesTheStream(t *testing.T) {
	r := startTokens(t, 1, 1, func(c *vllmsim.Config) { c.OutputTokenIDs = true })
	s := r.see(t, talkChat, map[string]any{}, true, http.Header{})
	if s.hits == 0 {
		t.Error("no turn was a hit")
	}
	asked := slices.DeleteFunc(legs(r.decode[0]), func(body []byte) bool { return !gjson.GetBytes(body, "return_token_ids").Bool() })
	// The first leg is that which finds the plug-in.
	if len(asked) != 1 {
		t.Errorf("decode legs that asked for ids: got %d, want 1", len(asked))
	}
	for _, body := range legs(r.prefill[0]) {
		if bytes.Contains(body, []byte("output_token_ids")) {
			t.Errorf("prefill got output_token_ids: %.300s", body)
		}
	}
	r.verifyReads(t, 0)
}
