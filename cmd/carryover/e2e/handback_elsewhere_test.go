package e2e

import (
	"testing"
)

// A turn whose conversation was handed back to a start of prefill that is over says so, whichever way the restart shows.
func TestHandBack_ReasonAfterPrefillWasRestarted(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{true, false} {
		for mode, flags := range handBackModes() {
			for _, prefills := range []int{1, 2} {
				t.Run(mode, func(t *testing.T) {
					t.Parallel()
					h := startHanding(t, handingConfig(), prefills, 1, append([]string{"--routing-prefill", "affinity"}, flags...)...)
					c := h.talk("restarted")
					c.want(t, "miss;reason=first_turn")
					h.handedBack(t, ends{done: 1})
					c.hits(t)
					h.handedBack(t, ends{done: 2})
					for _, instance := range h.prefill {
						instance.Restart()
					}
					if read {
						h.look()
					}
					if a := c.turn(t); noHit(a.reuse()) != "miss;reason=handed_back_elsewhere" {
						t.Errorf("the restart is read: %v: X-KV-Reuse %q, want handed_back_elsewhere", read, a.reuse())
					}
				})
			}
		}
	}
}
