package server

import (
	"sync"

	"carryover/upstream"
)

// detach has what a turn was admitted with outlive it, until end is called: its place and its bytes in flight, both on its tenant's
// account. Legs that go on when their client has left keep them, or a client that asks and leaves at once could have more done
// than its share.
func (s *turns) detach(t *turn) (end func()) {
	placed, share := t.placed, t.share
	t.placed, t.share = false, reservation{client: share.client}
	return func() {
		share.giveBack()
		if placed {
			s.unseat(share.client)
		}
	}
}

// detachable is a leg that may outlive its turn. It is safe for concurrent use.
type detachable struct {
	mu    sync.Mutex // guards the rest
	ended bool
	free  []func()
}

// keeps has the leg give these back when it ends, which may have happened.
func (d *detachable) keeps(free ...func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, free...)
	if d.ended {
		d.giveBack()
	}
}

// end ends the leg.
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

// sending is a leg that is sent now: its body is the callee's, which lets go of it as soon as it is written.
func sending(leg *upstream.Leg) upstream.Leg {
	sent := *leg
	leg.Body = nil
	return sent
}
