package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/fleet/pairs"
	"carryover/upstream/vllmsim"
)

// shortAsk is the n-th request to an API.
func shortAsk(path string, n int, stream bool) object {
	asks, body := fmt.Sprintf("SAY the number %d. %s", n, longText(n)), object{"model": "sim", "stream": stream}
	switch path {
	case "/v1/completions":
		body["prompt"], body["max_tokens"] = asks, 8
	case pathResponses:
		body["input"], body["max_output_tokens"], body["store"] = asks, 8, false
	default:
		body["messages"], body["max_tokens"] = []any{map[string]string{"role": "user", "content": asks}}, 8
	}
	return body
}

// A pair whose decode can't load what prefill hands over, as between versions of vLLM that do not fit, is left alone after three turns, which
// are answered all the same. Decode gets no blame, and operators are told.
func TestApart_ALonePair(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", pathMessages, pathResponses} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream %t", path, stream), func(t *testing.T) {
				t.Parallel()
				r := startRig(t, rigConfig{
					prefill: []vllmsim.Config{engineWith(`{"block_size":8}`)}, decode: []vllmsim.Config{vllmsim.DefaultConfig()},
				})
				for n := range pairs.Strikes + 4 {
					a := r.must(t, path, nil, shortAsk(path, n, stream))
					if a.status != http.StatusOK || strings.Contains(string(a.raw), `"error":{`) || a.ends == endsBroken {
						t.Fatalf("turn %d: %+v", n, a)
					}
					if alone := strings.HasPrefix(a.header.Get("X-KV-Path"), "decode_only;reason=prefill_failed"); !alone && n >= pairs.Strikes-1 {
						t.Errorf("turn %d: X-KV-Path %q", n, a.header.Get("X-KV-Path"))
					}
				}
				if m := scrape(t, r.metrics()); m.sum("carryover_instance_state", `"prefill"`, `"apart"`) != 1 || m.sum("carryover_instance_state", `"decode"`, `"up"`) != 1 {
					t.Errorf("prefill is to be apart, and decode up: %v", m.own("carryover_instance_state"))
				}
				told, _ := r.proxy.Events.Newest(0)
				if n := strings.Count(fmt.Sprint(told), "are left alone for 1m0s"); n != 1 {
					t.Errorf("operators are told %d times of the pair, want once: %v", n, told)
				}
				r.verify(t, pins{leased: pairs.Strikes}) // each of them was handed over once
				if n := r.proxy.Server.Counts().Stranded; n != pairs.Strikes {
					t.Errorf("%d hand-overs count as stranded, want %d", n, pairs.Strikes)
				}
			})
		}
	}
}

// Where another prefill instance can be read, no turn is decode's alone.
func TestApart_OnePrefillOfTwo(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		cfg := vllmsim.DefaultConfig()
		r := startRig(t, rigConfig{prefill: []vllmsim.Config{engineWith(`{"block_size":8}`), cfg}, decode: []vllmsim.Config{cfg, cfg}, flags: []string{"--routing-prefill", "round_robin"}})
		for n := range 12 {
			if a := r.say(t, shortAsk("", n, stream)); a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("X-KV-Path"), "prefill_decode;") {
				t.Errorf("turn %d: %+v", n, a)
			}
		}
		if m := scrape(t, r.metrics()); m.sum("carryover_instance_state", `"apart"`) != 1 || m.sum("carryover_instance_state", `"up"`) != 3 {
			t.Errorf("one is to be apart: %v", m.own("carryover_instance_state"))
		}
		if n := r.prefill[0].Stats().Pins; n > 2*pairs.Strikes {
			t.Errorf("%d turns went to the instance that nobody can read", n)
		}
	}
}
