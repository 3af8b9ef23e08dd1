package server

import (
	"sync"

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

// detachable holds the resources of a leg that may outlive its turn. It is safe for concurrent use.
type detachable struct {
	mu    sync.Mutex // guards the rest
	ended bool
	free  []func()
}

// keeps has the leg call these functions when it ends, or at once if it has ended.
func (d *detachable) keeps(free ...func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, free...)
	if d.ended {
		d.giveBack()
	}
}

// end notes that the leg has ended, and gives back its resources.
func (d *detachable) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	d.giveBack()
}

// giveBack needs d.mu.
func (d *detachable) giveBack() {
	for _, free := range d.free {
		free()
	}
	d.free = nil
}

// sending returns the leg for the call that sends it, and removes the body from the original, so that the body can be freed as soon as it
// is written.
func sending(leg *upstream.Leg) upstream.Leg {
	sent := *leg
	leg.Body = nil
	return sent
}
