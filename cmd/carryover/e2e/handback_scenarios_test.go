package e2e

import (
	"fmt"
	"testing"

	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// Conversations whose tickets are handed back between their turns.

// The next turn comes while the ticket is on its way, to the same replica or to another.
func TestHandBack_TheNextTurnRacesIt(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 2} {
		for _, at := range holdPoints() {
			t.Run(fmt.Sprintf("%d replicas, %s", replicas, at), func(t *testing.T) {
				t.Parallel()
				c := rigConfig{cfg: handingConfig(), prefills: 2, decodes: 2, flags: atOnce}
				if replicas == 2 {
					c.redis = redistest.Start(t).Addr()
				}
				first := startRig(t, c)
				second := first
				if c.sharing = first; replicas == 2 {
					second = startRig(t, c)
				}
				talk := first.talk("raced")
				talk.want(t, "miss;")
				first.handedBack(t, ends{done: 1})
				release := first.hold(at)
				defer release()
				talk.hits(t)
				first.held(t)
				talk.rig = second
				a := talk.turn(t)
				if a.hit() && !byEngine(a.reuse()) {
					t.Errorf("X-KV-Reuse %q: the ticket was used twice", a.reuse())
				}
				if replicas == 1 && noHit(a.reuse()) != "miss;reason=handing_back" {
					t.Errorf("X-KV-Reuse %q, want that it is on its way", a.reuse())
				}
				release()
				first.settle(t)
				second.settle(t)
				first.free(t, 0)
				talk.hits(t)
				first.settle(t)
				second.settle(t)
				talk.rig = first
				talk.hits(t)
				first.settle(t)
				if n := first.ends().done + second.ends().done; replicas == 2 && n != 5 || replicas == 1 && n != 10 {
					t.Errorf("handed back: %+v and %+v, want all five", first.ends(), second.ends())
				}
				if second != first {
					second.stop()
					second.saidNothing(t)
				}
				first.verifyBack(t, accounted{})
			})
		}
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
