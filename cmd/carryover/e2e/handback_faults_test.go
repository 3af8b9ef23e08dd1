package e2e

import (
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// What may befall the leg of a hand-back: no turn fails by it, no answer is wrong, and decode keeps at most what that leg was to read.

// taker is the prefill instance that has taken hand-backs.
func (h *rig) taker(t *testing.T) *vllmsim.Instance {
	t.Helper()
	for _, instance := range h.prefill {
		if instance.Stats().HandBacks > 0 {
			return instance
		}
	}
	t.Fatal("nothing was handed back")
	return nil
}

// What befalls the instances while a hand-back is under way.
func TestHandBack_InstancesGoDuringIt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		event func(t *testing.T, h *rig, prefill, decode *vllmsim.Instance)
		at    vllmsim.HandBackPoint
		want  ends
		accounted
	}{
		{"prefill is restarted", restartsPrefill, vllmsim.HandBackQueued, ends{failed: 1}, accounted{pins: 1}},
		{"prefill is restarted", restartsPrefill, vllmsim.HandBackRead, ends{failed: 1}, accounted{pins: 1, upTo: true}},
		{"prefill is restarted", restartsPrefill, vllmsim.HandBackComputed, ends{failed: 1}, accounted{}},
		{"prefill dies", closesPrefill, vllmsim.HandBackQueued, ends{failed: 1}, accounted{pins: 1}},
		{"prefill dies", closesPrefill, vllmsim.HandBackRead, ends{failed: 1}, accounted{pins: 1, upTo: true}},
		{"prefill dies", closesPrefill, vllmsim.HandBackComputed, ends{failed: 1}, accounted{}},
		{"prefill is quarantined", quarantinesPrefill, vllmsim.HandBackQueued, ends{done: 1}, accounted{}},
		{"prefill is quarantined", quarantinesPrefill, vllmsim.HandBackRead, ends{done: 1}, accounted{}},
		{"prefill is quarantined", quarantinesPrefill, vllmsim.HandBackComputed, ends{done: 1}, accounted{}},
		{"decode is restarted", restartsDecode, vllmsim.HandBackQueued, ends{failed: 1}, accounted{stale: 1}},
		{"decode is restarted", restartsDecode, vllmsim.HandBackRead, ends{done: 1}, accounted{}},
		{"decode is restarted", restartsDecode, vllmsim.HandBackComputed, ends{done: 1}, accounted{}},
		{"decode dies", closesDecode, vllmsim.HandBackQueued, ends{failed: 1}, accounted{pins: 1}}, // its own, which nobody can free
		{"decode dies", closesDecode, vllmsim.HandBackRead, ends{done: 1}, accounted{pins: 1}},
		{"decode dies", closesDecode, vllmsim.HandBackComputed, ends{done: 1}, accounted{}},
	} {
		t.Run(tc.name+", "+string(tc.at), func(t *testing.T) {
			t.Parallel()
			h := startHanding(t, handingConfig(), 2, 2, atOnce...)
			c := h.talk("gone")
			c.want(t, "miss;reason=first_turn")
			h.handedBack(t, ends{done: 1})
			release := h.hold(tc.at)
			defer release()
			c.hits(t)
			h.held(t)
			prefill, decode := h.taker(t), h.last(t)
			if n := prefill.Stats().HeldHandBacks; n != 1 {
				t.Fatalf("prefill holds %d hand-backs, want 1", n)
			}
			tc.event(t, h, prefill, decode)
			release()
			so := ends{1 + tc.want.done, tc.want.failed, tc.want.kept}
			h.handedBack(t, so)
			lost := 0 // answers to turns that were meant for what is gone leave no ticket: its start is not known
			for range 2 {
				a := c.turn(t)
				if a.hit() && !byEngine(a.reuse()) {
					t.Errorf("X-KV-Reuse %q: the ticket was used again", a.reuse())
				}
				h.settle(t)
				if record := h.turns.await(t, a.header.Get("X-Request-Id")); record.Stored != "yes" {
					lost++
					if record.Stored != "ineligible_unproven;why=incarnation" || !strings.HasSuffix(tc.name, "dies") {
						t.Errorf("turn %d: stored %q", c.asks, record.Stored)
					}
				}
			}
			so.done += 2 - lost
			h.handedBack(t, so)
			tc.pins += lost
			h.verifyBack(t, tc.accounted)
		})
	}
}

// last is the decode instance that has answered last. Of equal ones it is the first.
func (h *rig) last(t *testing.T) *vllmsim.Instance {
	t.Helper()
	for _, instance := range h.decode {
		if instance.Stats().RequestsTotal > 0 && len(legs(instance)) > 0 && strings.Contains(string(legs(instance)[len(legs(instance))-1]), longText(2)) {
			return instance
		}
	}
	t.Fatal("no instance has answered the second turn")
	return nil
}

func restartsPrefill(_ *testing.T, _ *rig, prefill, _ *vllmsim.Instance) { prefill.Restart() }

func restartsDecode(_ *testing.T, _ *rig, _, decode *vllmsim.Instance) { decode.Restart() }

// closesPrefill has an instance refuse connections from now on.
func closesPrefill(t *testing.T, _ *rig, prefill, _ *vllmsim.Instance) {
	t.Helper()
	if err := prefill.SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
		t.Error(err)
	}
	prefill.Restart()
}

func closesDecode(t *testing.T, _ *rig, _, decode *vllmsim.Instance) {
	t.Helper()
	if err := decode.Close(); err != nil {
		t.Error(err)
	}
}

func quarantinesPrefill(t *testing.T, h *rig, prefill, _ *vllmsim.Instance) {
	t.Helper()
	for _, engine := range h.proxy.Fleet.Engines(upstream.RolePrefill) {
		if strings.HasSuffix(prefill.URL(), engine.Name) || engine.BaseURL == prefill.URL() {
			engine.Current(t.Context()).Quarantine()
			return
		}
	}
	t.Error("the program does not know the instance")
}

// Instances that are gone before the leg is sent: the ticket waits for them, or is worth nothing. It waits behind one that prefill has stopped.
func TestHandBack_InstancesGoBeforeIt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		event func(t *testing.T, h *rig)
		reuse string // of the next turn
	}{
		{"prefill refuses connections", func(t *testing.T, h *rig) {
			t.Helper()
			h.hangUp() // a leg on an idle connection that prefill is about to close would count as sent
			h.setFault(t, h.prefill[0], vllmsim.Fault{Kind: vllmsim.FaultRefuse})
		}, "hit;"},
		{"decode is restarted", func(_ *testing.T, h *rig) {
			h.decode[0].Restart()
			h.look()
		}, "miss;reason=instance_gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := startHanding(t, handingConfig(), 1, 1, atOnce...)
			before, c := &listed{rig: h, id: "before"}, &listed{rig: h, id: "waits"}
			before.turn(t)
			h.handedBack(t, ends{done: 1})
			release := h.hold(vllmsim.HandBackComputed)
			defer release()
			before.turn(t)
			h.held(t)
			c.turn(t)
			tc.event(t, h)
			release()
			if !testrig.Eventually(func() bool { got := h.ends(); return got.done+got.failed == 2 }) || h.store.unused() != 1 {
				t.Errorf("hand-backs: got %+v, and %d tickets in the store; want two at an end, and the third in the store", h.ends(), h.store.unused())
			}
			if err := h.prefill[0].ClearFaults(); err != nil {
				t.Fatal(err)
			}
			h.look()
			h.settle(t) // what was not begun is handed back now
			if a := c.turn(t); !strings.HasPrefix(noHit(a.reuse()), tc.reuse) {
				t.Errorf("X-KV-Reuse %q, want %s", a.reuse(), tc.reuse)
			}
			h.settle(t)
			if a := c.turn(t); !byEngine(a.reuse()) {
				t.Errorf("X-KV-Reuse %q, want a hit by proof=engine", a.reuse())
			}
			h.settle(t)
			h.verifyBack(t, accounted{pins: -h.store.unused()})
		})
	}
}

// A leg that takes too long is given up; whatever becomes of it then, nothing else names its blocks.
func TestHandBack_TheLegTakesTooLong(t *testing.T) {
	t.Parallel()
	for _, at := range holdPoints() {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			h := startRig(t, rigConfig{cfg: handingConfig(), flags: atOnce, server: func(c *server.Config) { c.ReuseTrialTimeout = 3 * time.Second }})
			c := h.talk("late")
			c.turn(t)
			h.settle(t)
			before := h.ends()
			release := h.hold(at)
			defer release()
			c.turn(t)
			h.settle(t)
			if got := h.ends(); got.failed != before.failed+1 || got.done != before.done {
				t.Errorf("hand-backs: got %+v, and %+v before it was held", got, before)
			}
			// One that waits is taken back once its engine has heard of it; one that was let go on before that would be read.
			if at == vllmsim.HandBackQueued && !testrig.Eventually(func() bool { return h.atPrefill("running") == 0 }) {
				t.Error("the leg that was given up still waits")
			}
			release()
			for range 3 {
				if a := c.turn(t); a.hit() && !byEngine(a.reuse()) {
					t.Errorf("X-KV-Reuse %q: the ticket was used again", a.reuse())
				}
				h.settle(t)
			}
			left := before.failed
			if at == vllmsim.HandBackQueued {
				left++
			}
			h.verifyBack(t, accounted{pins: left})
		})
	}
}
