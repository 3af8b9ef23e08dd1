package e2e

import (
	"encoding/json"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
)

// sum adds up the statistics of a role, or of all instances for "".
func (r *rig) sum(role string) map[string]int {
	total := map[string]int{}
	for _, instance := range r.all(role) {
		one := map[string]int{}
		_ = json.Unmarshal(encode(instance.Stats()), &one) // they are numbers
		for name, n := range one {
			total[name] += n
		}
		total["used"] += min(1, one["finished"])
	}
	return total
}

// atPrefill and atDecode are one of the statistics of a role.
func (r *rig) atPrefill(name string) int { return r.sum(config.RolePrefill)[name] }

func (r *rig) atDecode(name string) int { return r.sum(config.RoleDecode)[name] }

// wrongReads are the statistics that a read of anything but the reader's own KV
// moves.
func wrongReads() []string {
	return []string{"corrupt_reads", "poisoned", "double_reads", "expired_reads", "unknown_reads", "deaths", "uneven_hand_backs", "leased_hand_backs", "other_salts", "early_reads"}
}

// nothingWrong asserts that none of these statistics has moved, nor one of wrong reads.
func (r *rig) nothingWrong(t *testing.T, more ...string) {
	t.Helper()
	total := r.sum("")
	for _, name := range append(wrongReads(), more...) {
		if total[name] != 0 {
			t.Errorf("%s: got %d, want 0", name, total[name])
		}
	}
}

// pinned are the tokens that the program says are pinned, and those of the answers that decode pins.
func (r *rig) pinned(t *testing.T) (told, held int) {
	t.Helper()
	return int(scrape(t, r.metrics()).sum("carryover_pinned_tokens")), r.atDecode("pinned_blocks") * r.cfg.BlockSize
}

func (r *rig) toldPinned(t *testing.T) bool {
	t.Helper()
	told, held := r.pinned(t)
	return told == held
}

// wantPinned waits until decode pins so many answers, and the program says the same.
func (r *rig) wantPinned(t *testing.T, answers int) {
	t.Helper()
	// What reads all metrics comes last: some scenarios wait for seconds.
	if !testrig.Eventually(func() bool { return r.atDecode("pins") == answers && r.sum("")["running"] == 0 && r.toldPinned(t) }) {
		told, held := r.pinned(t)
		t.Errorf("%d tokens are said to be pinned, decode pins %d of %d answers; want the same, of %d", told, held, r.atDecode("pins"), answers)
	}
}

// wrong sums up what nothingWrong asserts to be zero.
func (r *rig) wrong() (n int) {
	total := r.sum("")
	for _, name := range wrongReads() {
		n += total[name]
	}
	return n
}

// saidNothing asserts that nothing panicked.
func (r *rig) saidNothing(t *testing.T) {
	t.Helper()
	for _, message := range r.turns.panics() {
		t.Errorf("log: %s", message)
	}
}

// pins are the pins that a test explains beside those of tickets that were not used.
type pins struct {
	unused int // of decode, without a ticket or of one that was spent in vain
	leased int // of prefill, whose hand-over was not read
}

// verify ends the program and asserts what every test of it ends with: nothing was
// read wrongly, and every pin is one that a ticket names or that the test explains.
func (r *rig) verify(t *testing.T, want pins) {
	t.Helper()
	r.verifyPins(t, func() pins { return want })
}

// verifyPins is verify where the engines tell what explains their pins: a leg that was given up may still reach its engine when the
// program has ended.
func (r *rig) verifyPins(t *testing.T, explained func() pins) {
	t.Helper()
	r.stop()
	r.nothingWrong(t)
	var total map[string]int
	got, want, unused := pins{}, pins{}, r.store.unused()
	// Prefill tells decode about blocks that it does not need without waiting.
	settled := testrig.Eventually(func() bool {
		want = explained()
		want.unused += unused
		total = r.sum("")
		got = pins{unused: total["pins"] - total["leased_pins"], leased: total["leased_pins"]}
		return got == want && total["running"] == 0
	})
	if !settled {
		t.Errorf("pins: got %+v, want %+v; %d requests still run", got, want, total["running"])
	}
	if total["parked"] != 0 {
		t.Errorf("parked requests: got %d, want 0", total["parked"])
	}
	r.saidNothing(t)
}
