package server

import (
	"carryover/server/admission"
	"carryover/server/request"
	"carryover/upstream"
)

// detach lets a turn's slot and its reserved bytes outlive the turn, until end is called. Legs that go on after their client has left keep
// both, counted for the client's tenant. Otherwise a client that asks and leaves at once could get more than its share.
func (t *turn) detach() (end func()) {
	lease, share := t.lease, t.share
	t.lease, t.share = admission.Lease{}, request.Reservation{Client: share.Client}
	return func() {
		share.GiveBack()
		lease.GiveBack()
	}
}

// sending returns the leg for the call that sends it, and removes the body from the original, so that the body can be freed as soon as it
// is written.
func sending(leg *upstream.Leg) upstream.Leg {
	sent := *leg
	leg.Body = nil
	return sent
}
