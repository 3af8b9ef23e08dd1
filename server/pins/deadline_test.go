package pins

import (
	"testing"
	"time"

	"carryover/convcache/clocktest"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// lone is the only engine of a fleet.
func lone(role upstream.Role) *fleet.Engine {
	f := fleet.New(fleet.Config{})
	f.Set([]upstream.Instance{{Name: "lone", Role: role, KVTTL: 480 * time.Second}})
	return f.Engines(role)[0]
}

func TestDeadline_CountsTheTimeThatAMachineWasSuspended(t *testing.T) {
	decode := lone(upstream.RoleDecode)
	for expires, want := range map[bool]time.Duration{true: 350 * time.Second, false: 320 * time.Second} {
		freshAsOf := clocktest.Apart(t, time.Now(), -100*time.Second)
		if got := -upstream.Elapsed(Deadline(450*time.Second, decode, freshAsOf, expires), time.Now()); got > want || got < want-time.Minute {
			t.Errorf("tells when it expires: %v: got %v, want %v", expires, got, want)
		}
	}
}
