package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// Streams of stock vLLM 0.32 have no params, so that nothing tells what decode keeps of them. Where streams are made of whole answers,
// decode keeps nothing of those either that leave no ticket.
func TestRelease_StreamsMadeOfWholeAnswersLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flags  []string
		path   string
		header http.Header
		more   map[string]any
	}{
		"no conversation":                {},
		"no conversation, handed back":   {flags: []string{"--hand-back", "now"}},
		"no conversation, history proof": {flags: []string{"--proof", "history"}},
		"text, no conversation":          {path: "/v1/completions", more: map[string]any{"prompt": longText(3)}},
		"the last turn":                  {header: http.Header{"X-Conversation-Id": {"last"}, "X-Conversation-Final": {"true"}}},
		"reuse is off":                   {header: http.Header{"X-Conversation-Id": {"off"}, "X-Kv-Reuse": {"off"}}},
		"nothing is proven":              {more: map[string]any{"conversation_id": "truncated", "truncate_prompt_tokens": 400}},
		"echo":                           {path: "/v1/completions", more: map[string]any{"prompt": longText(3), "echo": true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := startReleasing(t, 1, 1, func(c *vllmsim.Config) {
				c.Version, c.Params = vllmsim.VLLM032, vllmsim.ParamsNever
			}, append([]string{"--decode-stream", "buffered"}, tc.flags...)...)
			if tc.header == nil {
				tc.header = http.Header{}
			}
			path, body := "/v1/chat/completions", map[string]any{"model": "sim", "stream": true, "max_tokens": 60}
			if tc.path == "" {
				body["messages"] = []json.RawMessage{question(longText(3))}
			} else {
				path = tc.path
			}
			maps.Copy(body, tc.more)
			for n := range 3 {
				a, err := r.post(t.Context(), path, tc.header, encode(body), unwatched)
				if err != nil || a.status != http.StatusOK || a.ends != endsDone {
					t.Fatalf("stream %d: %v, %+v", n, err, a)
				}
			}
			if got := r.sum(t, config.RoleDecode); got["requests"] == 0 {
				t.Error("decode has answered nothing")
			}
			if !testrig.Eventually(func() bool { return r.sum(t, config.RoleDecode)["pins"] == 0 }) {
				t.Errorf("decode pins %d answers, want none", r.sum(t, config.RoleDecode)["pins"])
			}
			r.verifyReads(t, 0)
		})
	}
}

// With the plug-in streams tell what decode keeps: nobody waits for the end of an answer that leaves no ticket.
func TestRelease_StreamsOfThePlugInStayStreams(t *testing.T) {
	t.Parallel()
	r, _ := startReleasing(t, 1, 1, func(c *vllmsim.Config) { c.OutputTokenIDs = true }, "--decode-stream", "buffered")
	c := &chatting{rig: r, id: "c", cfg: vllmsim.DefaultConfig()}
	c.learnt(t)
	body := encode(map[string]any{"model": "sim", "stream": true, "messages": []json.RawMessage{question("SAY something.")}})
	before := len(r.decode[0].Requests())
	if a, err := r.post(t.Context(), "/v1/chat/completions", http.Header{}, body, unwatched); err != nil || a.ends != endsDone {
		t.Fatalf("%v, %+v", err, a)
	}
	streams := 0
	for _, leg := range r.decode[0].Requests()[before:] {
		if gjson.GetBytes(leg.Body, "stream").Bool() {
			streams++
		}
	}
	if streams != 1 {
		t.Errorf("decode was asked for %d streams, want one", streams)
	}
	if !testrig.Eventually(func() bool { return r.sum(t, config.RoleDecode)["pins"] == 1 }) {
		t.Errorf("decode pins %d answers, want that of the conversation", r.sum(t, config.RoleDecode)["pins"])
	}
	r.verifyReads(t, 0)
}
