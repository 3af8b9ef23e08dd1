package turn

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

func TestPrefillLimit_ALegEndsBeforeDecodeMayFreeItsTicket(t *testing.T) {
	for name, tc := range map[string]struct {
		life, trial, want time.Duration
		cause             error
	}{
		"a second of life":     {time.Second, 100 * time.Second, 26 * time.Second, upstream.ErrTicketEnded},
		"at its deadline":      {0, 100 * time.Second, 25 * time.Second, upstream.ErrTicketEnded},
		"a shorter trial":      {time.Second, 10 * time.Second, 10 * time.Second, upstream.ErrReuseTimeout},
		"life enough":          {400 * time.Second, 100 * time.Second, 100 * time.Second, upstream.ErrReuseTimeout},
		"life and time enough": {400 * time.Second, 200 * time.Second, 120 * time.Second, upstream.ErrPrefillTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &Handler{cfg: Config{LegConfig: LegConfig{PrefillTimeout: 120 * time.Second}, ReuseTrialTimeout: tc.trial}}
				a := &attempt{h: h, Attempt: pick.Attempt{Request: &request.Request{}}, pair: &pick.Pair{Prefill: lone(upstream.RolePrefill).Last()}}
				a.failed.added = true
				began := time.Now()
				for _, deadline := range []time.Time{began.Add(tc.life), began.Add(tc.life).Round(0)} { // of this process, and of another
					a.claim = reuse.Claim{Claim: pins.Claim{Ticket: &convcache.Ticket{Branch: convcache.Branch{Deadline: deadline}}}}
					if limit, cause := a.prefillLimit(); limit != tc.want || !errors.Is(cause, tc.cause) {
						t.Errorf("ends after %v with %v, want %v with %v", limit, cause, tc.want, tc.cause)
					}
				}
			})
		})
	}
}

// lone is the only engine of a fleet.
func lone(role upstream.Role) *fleet.Engine {
	f := fleet.New(fleet.Config{})
	f.Set([]upstream.Instance{{Name: "lone", Role: role, KVTTL: 480 * time.Second}})
	return f.Engines(role)[0]
}
