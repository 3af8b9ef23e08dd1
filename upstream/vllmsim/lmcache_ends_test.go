package vllmsim

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"carryover/upstream/vllmsim/wire"
)

func TestLMCache_SyncSenderAnswersWithoutSpec(t *testing.T) {
	p, _, _ := startLMCache(t, func(c *Config) { c.LMCache.Mode = LMCacheSync })
	got := chat(t, p, asking("Hello."))
	if s := p.Stats(); got.status != http.StatusOK || got.params() != nil || s.Deaths != 0 {
		t.Errorf("answered %s with %d deaths, want an answer without params", got.raw, s.Deaths)
	}
}

func TestLMCache_SenderWithoutSpecDies(t *testing.T) {
	prompt := []int32{300, 301, 302}
	for name, params := range map[string]object{
		"none": nil, "only ret_first_tok": {"ret_first_tok": true}, "no members": {"disagg_spec": object{}},
	} {
		t.Run(name, func(t *testing.T) {
			p, d, _ := startLMCache(t, nil)
			body := object{"model": "sim", "prompt": prompt, "kv_transfer_params": params}
			post(t, p, wire.PathCompletions, body).answers(t, http.StatusInternalServerError)
			expect(t, p, counts{"Deaths": 1})
			post(t, d, wire.PathCompletions, body).answers(t, http.StatusOK)
		})
	}
}

func TestLMCache_ReceiverThatIsNotThereStopsTheSender(t *testing.T) {
	for _, mode := range []string{LMCacheAsync, LMCacheSync} {
		t.Run(mode, func(t *testing.T) {
			p, d, _ := startLMCache(t, func(c *Config) { c.LMCache.Mode = mode })
			other := startInstance(t, func(c *Config) { c.Role, c.Connector = "decode", ConnectorLMCache })
			prompt := tokens(t, p, longText)
			if mode == LMCacheSync {
				first(t, push(t, p, prompt, spec(d, "a"), nil)) // it has known it
			}
			gone := spec(d, "b")
			must(t, d.Close())
			unanswered := func(s object) {
				t.Helper()
				before := p.Stats().Parked
				done := begin(t, p, wire.PathCompletions, object{"model": "sim", "prompt": prompt, "max_tokens": 1, "kv_transfer_params": object{"ret_first_tok": true, "disagg_spec": s}})
				becomes(t, p, counts{"Parked": before + 1})
				done()
				becomes(t, p, counts{"Parked": before})
			}
			unanswered(gone)
			unanswered(spec(other, "c"))
			get(t, p, "/health").answers(t, http.StatusOK)
			p.Restart()
			first(t, push(t, p, prompt, spec(other, "d"), nil))
		})
	}
}

// A request that asks for its first token and is aborted before it has one ends a sender in either mode (measured).
func TestLMCache_AbortBeforeTheFirstTokenThatIsAskedFor(t *testing.T) {
	for _, mode := range []string{LMCacheAsync, LMCacheSync} {
		for _, asks := range []bool{false, true} {
			t.Run(mode+" "+strconv.FormatBool(asks), func(t *testing.T) {
				p, d, _ := startLMCache(t, func(c *Config) { c.LMCache.Mode, c.Timing.PrefillPerToken = mode, time.Hour })
				params := object{"disagg_spec": spec(d, "a")}
				if asks {
					params["ret_first_tok"] = false
				}
				leave := begin(t, p, wire.PathCompletions, object{"model": "sim", "prompt": tokens(t, p, longText), "max_tokens": 1, "kv_transfer_params": params})
				becomes(t, p, counts{"Running": 1})
				leave()
				becomes(t, p, counts{"Running": 0})
				if got := p.Stats().Deaths; got != map[bool]int{true: 1}[asks] {
					t.Errorf("%d deaths", got)
				}
			})
		}
	}
}
