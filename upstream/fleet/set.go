package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// Set replaces the set of instances. An instance with the same name, role, address and rank keeps its Engine, whatever
// other settings change. An engine that is missing is removed: the fleet forgets it, except its quarantine, when its
// last attempt has ended and, for decode, when none of its blocks can be pinned any more. An instance that comes back
// before that gets the same Engine again. Set closes idle connections when it removes an engine.
func (f *Fleet) Set(instances []upstream.Instance) {
	first, added, gone := f.replace(instances)
	if len(gone) > 0 {
		f.cfg.Client.Close()
	}
	if !first && len(added)+len(gone) > 0 {
		f.cfg.Tell(fmt.Sprintf("Instances were added: %s; removed: %s.", namesOf(added), namesOf(gone)))
	}
	f.freed()
}

// namesOf names engines for operators.
func namesOf(engines []*Engine) string {
	names := []string{}
	for _, e := range engines {
		names = append(names, e.Role.String()+" "+e.Name)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// replace does the work of Set but for telling of it, and returns the engines that have come and gone. first says that there were none.
func (f *Fleet) replace(instances []upstream.Instance) (first bool, added, gone []*Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, next := f.members.Load(), &members{}
	kept := map[*Engine]bool{}
	for _, instance := range instances {
		e := old.named[instance.Role][instance.Name]
		if e == nil || e.identity != identityOf(&instance) {
			e = f.succeed(e, instance)
			added = append(added, e)
		}
		f.configure(e, instance)
		kept[e] = true
		if next.named[e.Role] == nil {
			next.named[e.Role] = map[string]*Engine{}
		}
		next.engines[e.Role], next.named[e.Role][e.Name] = append(next.engines[e.Role], e), e
	}
	first = true
	for e := range old.all {
		if first = false; !kept[e] {
			gone = append(gone, e)
		}
	}
	f.change(next, added, gone)
	return first, added, gone
}

// change makes next the members of the fleet. What is remembered for added engines is theirs before a pick sees them. It needs f.mu.
func (f *Fleet) change(next *members, added, gone []*Engine) {
	var forgotten []*Engine
	for _, e := range gone {
		if e.Quarantined() {
			f.outlasts(e, next.engines[e.Role])
		}
		if !f.depart(e) {
			forgotten = append(forgotten, e)
		}
	}
	for _, e := range added {
		f.returns(e)
	}
	f.members.Store(next)
	for _, e := range gone {
		e.gone.Store(true)
		e.Cache.Lost()
	}
	f.picking.drop() // No attempt begins on an engine that is gone from here on.
	for _, e := range gone {
		if e.inFlight.Load() > 0 {
			f.draining = append(f.draining, e) // an engine that came back was taken from the list
		}
	}
	f.forget(forgotten)
	if len(added) > 0 {
		select { // Run asks them before its next round: until they answer they do not count as ready
		case f.came <- struct{}{}:
		default:
		}
	}
}

// succeed returns the engine for an instance that is new to the fleet. old is the engine that had its name, nil if
// there was none. An engine that drains or has departed is taken back when its instance returns under the same identity:
// so a source that loses an instance for a moment loses neither what is known of it nor its tickets. If
// another process answers at the address by now, its incarnation shows that. It needs f.mu.
func (f *Fleet) succeed(old *Engine, instance upstream.Instance) *Engine {
	id := identityOf(&instance)
	var e *Engine
	isBack := func(removed *Engine) bool {
		if removed.identity == id {
			e = removed
		}
		return removed.identity == id
	}
	f.Holders.departed, f.draining = slices.DeleteFunc(f.Holders.departed, isBack), slices.DeleteFunc(f.draining, isBack)
	if e == nil {
		e = f.newEngine(instance)
	}
	e.gone.Store(false)
	e.forgotten.Store(false)
	last := health.Drain{}
	if old != nil {
		last = old.Health.Drain()
	}
	e.Health.Decided(last)
	return e
}

// left forgets a removed engine when its last attempt has ended, unless a late attempt has come, or the engine is
// back.
func (f *Fleet) left(e *Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.gone.Load() && e.inFlight.Load() == 0 {
		f.draining = slices.DeleteFunc(f.draining, func(other *Engine) bool { return other == e })
		f.stays(e)
	}
}

// Draining returns the engines that were removed and still have attempts in flight, the first removed first. They are
// not picked or probed, and their tickets are not used. Each is listed until its last attempt ends.
func (f *Fleet) Draining() []*Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.draining)
}

// configure gives the engine other settings. Its process is still the same, so the fleet keeps what it knows, except
// what the old settings may have spoiled: stopped pairs, which a wrong kv_host causes. It needs f.mu.
func (f *Fleet) configure(e *Engine, instance upstream.Instance) {
	if *e.Instance() == instance {
		return
	}
	e.settings.Store(&instance)
	for _, prefill := range f.Engines(upstream.RolePrefill) {
		if known := prefill.lastKnown(); known != nil {
			known.retry(e)
		}
	}
}
