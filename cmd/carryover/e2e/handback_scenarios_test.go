package e2e

import (
	"testing"

	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// Conversations whose tickets are handed back between their turns.

// The next turn comes while the ticket is on its way, to another replica. To the same one: testdata/scenarios/hand-back-held.yaml.
func TestHandBack_TheNextTurnRacesIt(t *testing.T) {
	t.Parallel()
	for _, at := range holdPoints() {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			c := rigConfig{cfg: handing, prefills: 2, decodes: 2, flags: atOnce, redis: redistest.Start(t).Addr()}
			first := startRig(t, c)
			c.sharing = first
			second, talk := startRig(t, c), first.talk("raced")
			settle := func() {
				first.settle(t)
				second.settle(t)
			}
			talk.want(t, "miss;")
			first.handedBack(t, ends{done: 1})
			release := first.hold(at)
			defer release()
			talk.hits(t)
			first.held(t)
			talk.rig = second
			if a := talk.turn(t); a.hit() && !byEngine(a.reuse()) {
				t.Errorf("X-KV-Reuse %q: the ticket was used twice", a.reuse())
			}
			release()
			settle()
			first.free(t, 0)
			talk.hits(t)
			settle()
			talk.rig = first
			talk.hits(t)
			settle()
			if n := first.ends().done + second.ends().done; n != 5 {
				t.Errorf("handed back: %+v and %+v, want all five", first.ends(), second.ends())
			}
			second.stop()
			second.saidNothing(t)
			first.verifyBack(t, 0)
		})
	}
}

func holdPoints() []vllmsim.HandBackPoint {
	return []vllmsim.HandBackPoint{vllmsim.HandBackQueued, vllmsim.HandBackRead, vllmsim.HandBackComputed}
}

// hold stops hand-backs at every prefill instance.
func (r *rig) hold(at vllmsim.HandBackPoint) (release func()) {
	var all []func()
	for _, instance := range r.prefill {
		all = append(all, instance.HoldHandBacks(at))
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}
