package fleet

import (
	"slices"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// Drain takes an engine out of service, or back into it. A drained engine stays known and probed, tickets of its
// blocks are still used, and it gets new turns only if no other engine of its role is left. Drain reports whether the
// fleet has the engine. The drain outlasts a change of the instance's settings, and ends when the instance is removed.
func (f *Fleet) Drain(role upstream.Role, name string, drain bool) bool {
	e := f.Engine(role, name)
	if e == nil {
		return false
	}
	e.Health.SetDrain(drain)
	f.Picker.freed()
	return true
}

// TakeOver drains an engine, or takes it back, as another replica's operator has decided.
func (f *Fleet) TakeOver(e *Engine, drain health.Drain) {
	e.Health.Decided(drain)
	f.Picker.freed()
}

// Draining returns the engines that were removed and still have attempts in flight, the first removed first. They are
// not picked or probed, and their tickets are not used. Each is listed until its last attempt ends.
func (f *Fleet) Draining() []*Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.removed.draining)
}

// left forgets a removed engine when its last attempt has ended, unless a late attempt has come, or the engine is
// back.
func (f *Fleet) left(e *Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.member.gone.Load() && e.attempts.inFlight.Load() == 0 {
		f.removed.draining = slices.DeleteFunc(f.removed.draining, func(other *Engine) bool { return other == e })
		f.Holders.stays(e)
	}
}

// returning takes back an engine that drains or has departed when its instance returns under the same identity; nil if
// there is none. So a source that loses an instance for a moment loses neither what is known of it nor its tickets. If
// another process answers at the address by now, its incarnation shows that. It needs f.mu.
func (f *Fleet) returning(id identity) *Engine {
	e := f.Holders.rejoin(id)
	if draining := f.removed.returning(id); draining != nil {
		e = draining
	}
	if e != nil {
		e.member.gone.Store(false)
		e.member.forgotten.Store(false)
	}
	return e
}

// returning removes the draining engine with that identity from the list and returns it; nil if there is none.
func (r *removed) returning(id identity) *Engine {
	at := slices.IndexFunc(r.draining, func(e *Engine) bool { return e.identity == id })
	if at < 0 {
		return nil
	}
	e := r.draining[at]
	r.draining = slices.Delete(r.draining, at, at+1)
	return e
}
