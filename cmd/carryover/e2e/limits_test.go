package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/vllmsim"
)

// What decode refuses, and what prefill can't take, prefill does not compute. The client hears what decode says alone.
func TestLimits_PrefillComputesNothingInVain(t *testing.T) {
	t.Parallel()
	long, short := vllmsim.DefaultConfig(), vllmsim.DefaultConfig()
	long.MaxModelLen, short.MaxModelLen = 4096, 1024
	var text strings.Builder
	for n := range 20 {
		text.WriteString(longText(n) + ". ")
	}
	for name, row := range map[string]struct {
		prefill, decode vllmsim.Config
		asks            members
	}{
		"an answer of less than one token":  {long, long, members{"max_tokens": -1}},
		"a minimum above the maximum":       {long, long, members{"max_tokens": 4, "min_tokens": 5}},
		"stream_options without a stream":   {long, long, members{"stream_options": members{"include_usage": true}}},
		"an answer that is too long":        {long, long, members{"max_tokens": 3000}},
		"a prompt too long for decode":      {long, short, nil},
		"a prompt too long for prefill":     {short, long, members{"max_tokens": 8}},
		"a prompt too long for both":        {short, short, members{"max_tokens": 8}},
		"log probabilities of the prompt":   {long, long, members{"prompt_logprobs": 1, "max_tokens": 8}},
		"an echo with log probabilities":    {long, long, members{"echo": true, "logprobs": true, "max_tokens": 8}},
		"a prompt too long, in a stream":    {short, long, members{"stream": true, "max_tokens": 8}},
		"a maximum that is another's limit": {short, long, members{"max_tokens": 2000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, rigConfig{
				prefill: []vllmsim.Config{row.prefill}, decode: []vllmsim.Config{row.decode}, flags: []string{"--hand-back", "off"}, taught: true,
			})
			r.proxy.Fleet.Catalogue.Refresh(t.Context())
			computed := r.prefill[0].Stats().ComputedTokens
			for path, prompt := range map[string]members{
				"/v1/chat/completions": {"messages": []json.RawMessage{question(text.String())}},
				"/v1/completions":      {"prompt": text.String()},
			} {
				body := members{"model": "sim", "seed": 1}
				for _, more := range []members{prompt, row.asks} {
					for member, value := range more {
						body[member] = value
					}
				}
				lone := &rig{base: r.decode[0].URL(), client: r.client}
				want, err := lone.post(t.Context(), path, http.Header{}, encode(body), unwatched)
				if err != nil {
					t.Fatal(err)
				}
				got, err := r.post(t.Context(), path, http.Header{}, encode(body), unwatched)
				if err != nil || got.status != want.status || got.content != want.content || got.message != want.message {
					t.Errorf("%s: got %d %q %q, want %d %q %q (%v)", path, got.status, got.message, got.content, want.status, want.message, want.content, err)
				}
			}
			if n := r.prefill[0].Stats().ComputedTokens - computed; n != 0 {
				t.Errorf("prefill has computed %d tokens", n)
			}
			if n := r.leased(t); n != 0 {
				t.Errorf("prefill keeps the blocks of %d hand-overs", n)
			}
		})
	}
}
