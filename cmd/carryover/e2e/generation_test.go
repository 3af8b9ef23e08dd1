package e2e

import (
	"regexp"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
)

// An engine that any reading finds asleep has lost what it held, whatever its answers tell.
func TestGeneration_SeenAsleep(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigConfig{taught: true})
	a := r.talk("a")
	a.expect(t, "first_turn")
	a.expect(t, hit)
	was := r.proxy.Fleet.Engines(upstream.RoleDecode)[0].Last()
	r.decode[0].Sleep()
	was.Engine().Refresh(t.Context())
	r.decode[0].Resume()
	if !was.Ended() {
		t.Error("an incarnation outlives its sleep")
	}
	a.expect(t, "instance_gone")
	a.expect(t, hit)
	r.verify(t, pins{unused: -1}) // the ticket from before is in the store, and pins nothing
}

// A ticket that waits for its hand-back when decode sleeps is not handed back: prefill's cache is others' too.
func TestGeneration_NothingFromBeforeIsHandedBack(t *testing.T) {
	t.Parallel()
	const idle = 4 * time.Second
	for told := false; !told; { // again where the machine was too slow for b to tell the generation before a's hand-back is due
		r := startRig(t, rigConfig{taught: true, flags: []string{"--hand-back", "idle", "--hand-back-after", idle.String(), "--release", "on"}})
		a, b := r.talk("a"), r.talk("b")
		a.expect(t, "first_turn")
		last := time.Now()
		a.expect(t, whatever)
		r.decode[0].SleepAndWake()
		b.expect(t, "first_turn")
		if told = time.Since(last) < idle; told {
			// That of b is due after that of a.
			if !testrig.Eventually(func() bool { return r.atPrefill("hand_backs") == 1 }) {
				t.Errorf("%d hand-backs, want that of b", r.atPrefill("hand_backs"))
			}
			a.expect(t, whatever)
			b.expect(t, whatever)
			r.nothingWrong(t, "stale_reads")
		}
		r.stop()
	}
}

// Legs have no generation, as a proxy would send them that lets known members pass only.
func TestMutant_WithoutTheGenerationTheOracleSeesIt(t *testing.T) {
	generation := regexp.MustCompile(`"remote_registration_generation":\d+,|,"remote_registration_generation":\d+`)
	r := startRig(t, rigConfig{taught: true, replace: func(deps *server.Deps) {
		deps.Legs = &legChanger{Legs: deps.Legs, prefillBody: func(body []byte) []byte { return generation.ReplaceAll(body, nil) }}
	}})
	var messages speech
	for n := range 5 {
		messages = append(messages, says(n))
		messages = append(messages, r.askAs(t, "mutant", messages...).assistant())
		if n == 1 {
			r.decode[0].SleepAndWake()
			r.talk("other").expect(t, "first_turn") // tells the generation, so that the ticket from before is not used
		}
	}
	if r.sum("")["expired_reads"] != 0 {
		t.Error("the ticket from before the sleep was used")
	}
	if r.sum("")["stale_reads"] == 0 || r.wrong() == 0 {
		t.Error("prefill read by an older registration, and no instance noticed")
	}
}
