package server_test

import (
	"strings"
	"testing"

	"carryover/server"
)

// A miss is explained in words: in the log always, in the answer where the operator wants it.
func TestHint_OfAMiss(t *testing.T) {
	for _, on := range []bool{false, true} {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.ReuseHints = on }})
		miss := r.turn("c", 1, true)
		r.wantOK(miss, "miss;reason=first_turn")
		r.until(func() bool { return r.lines() == 1 })
		const want = "The request opens its conversation"
		if got := miss.header.Get("X-KV-Reuse-Hint"); strings.HasPrefix(got, want) != on || !on && got != "" {
			t.Errorf("hints %v: X-KV-Reuse-Hint %q", on, got)
		}
		if _, line := r.line(); !strings.HasPrefix(line["hint"].(string), want) {
			t.Errorf("the line's hint: %v", line["hint"])
		}
		hit := r.turn("c", 2, true)
		r.wantOK(hit, "hit;")
		r.until(func() bool { return r.lines() == 2 })
		if _, line := r.line(); line["hint"] != "" || hit.header.Get("X-KV-Reuse-Hint") != "" {
			t.Errorf("a hit is explained: %v, %q", line["hint"], hit.header.Get("X-KV-Reuse-Hint"))
		}
		refused := r.send(`{`)
		if got := refused.header.Get("X-KV-Reuse-Hint"); on != strings.HasPrefix(got, "Nothing was looked up") {
			t.Errorf("hints %v, a refused request: %q", on, got)
		}
	}
}
