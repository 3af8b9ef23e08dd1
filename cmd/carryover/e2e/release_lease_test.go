package e2e

import (
	"testing"

	"carryover/cmd/carryover/testrig"
)

// A release by a leg of our own leaves nothing on prefill: what it computes is dropped before the request ends by itself, which would keep
// a block for the lease of 30 s, and a core of prefill busy for as long.
func TestRelease_LegsOfOurOwnLeaveNoLease(t *testing.T) {
	t.Parallel()
	r, seen := startReleasingWith(t, 2, 2, asConfigured, releasingAtOnce, "--hand-back", "off")
	for n := range 8 {
		noError(t, r.oneShot(t.Context(), n))
	}
	if !within(workedOff, func() bool { return r.atDecode("pins") == 0 }) {
		t.Fatalf("decode pins %d answers", r.atDecode("pins"))
	}
	if !testrig.Eventually(func() bool {
		return r.atPrefill("leased_pins") == 0 && r.atPrefill("running") == 0
	}) {
		t.Errorf("prefill keeps the blocks of %d legs", r.atPrefill("leased_pins"))
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.released == 0 {
		t.Error("nothing was released")
	}
}
