package server_test

import (
	"strings"
	"testing"
	"time"

	"carryover/server"
)

// A prompt that is expected to take longer than the limit of prefill's leg gets more time: the engine has shown how fast it is. The limit of a
// leg that carries a ticket grows as well.
func TestTurn_ThePrefillLimitGrowsWithTheWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: func(c *server.Config) {
		c.PrefillTimeout, c.ReuseTrialTimeout = 9*soonOver/10, 9*soonOver/10
	}})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.engine(r.prefill[0]).LearnPrefill(1, time.Hour, true) // an hour for each token
	r.prefill[0].always(delayed(prefills))
	if p := r.turn("", 1, true); !strings.HasPrefix(p.path(), pathBoth) {
		t.Errorf("got X-KV-Path %q, want %q", p.path(), pathBoth)
	}
	r.wantOK(r.turn("c", 2, true), "hit;")
}
