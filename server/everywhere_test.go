package server_test

import (
	"fmt"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// What every engine answers with 500 in equal words is tried once more nowhere for a minute. However many such requests come, whatever is said of
// them, no circuit opens of an engine that serves other requests.
func TestEverywhere_ARequestThatFailsOnAllEngines(t *testing.T) {
	const many = 2 * health.FailuresToOpen
	for name, row := range map[string]struct {
		prefills, decodes int
		prefill, decode   string // what they say, "" if they serve
		first, later      int    // legs of the first such request, and of each later one; 0 if they are not told
		bodies            int    // how many different ones are sent
	}{
		"one pair, both":           {1, 1, "boom", "boom", 2, 1, 1},
		"one pair, other words":    {1, 1, "boom", "other", 0, 0, 1},
		"one pair, prefill alone":  {1, 1, "boom", "", 0, 0, 1},
		"two pairs, both":          {2, 2, "boom", "boom", 3, 1, 1},
		"two pairs, decode alone":  {2, 2, "", "boom", 4, 2, 1},
		"two pairs, prefill alone": {2, 2, "boom", "", 0, 0, 1},
		"one pair, many bodies":    {1, 1, "boom", "boom", 2, 2, 10 * many},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{prefills: row.prefills, decodes: row.decodes, fleet: frozen})
			legs := func() (n int) {
				for _, e := range append(r.prefill, r.decode...) {
					n += len(e.ofClients())
				}
				return n
			}
			for i, e := range append(r.prefill, r.decode...) { // equal words, but for the number
				says := row.prefill
				if e.role == upstream.RoleDecode {
					says = row.decode
				}
				if says != "" {
					e.always(where(func(l leg) bool { return strings.Contains(l.body, "POISON") }, status(500, fmt.Sprint(says, " ", i)), e.fallback))
				}
			}
			for i := range max(many, row.bodies) {
				before := legs()
				r.send(ask("", true, fmt.Sprint("POISON", i%row.bodies)))
				want := row.later
				if i == 0 {
					want = row.first
				}
				if got := legs() - before; row.first > 0 && got != want {
					t.Errorf("request %d: %d legs, want %d", i, got, want)
				}
			}
			if got := r.state(r.prefill[0]) + r.state(r.decode[0]); got != "upup" {
				t.Errorf("the engines are %s, want both up", got)
			}
			r.wantOK(r.send(ask("", true, "well")), "miss;")
		})
	}
}
