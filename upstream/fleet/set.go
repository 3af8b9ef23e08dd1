package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// Set replaces the instances. One with the same name, role, address and rank keeps its Engine, whatever else changes.
// The fleet forgets a removed engine, except its quarantine, when its last attempt has ended and, for decode, no block
// can be pinned any more. An instance that returns earlier gets the same Engine. Set closes idle connections when it
// removes engines.
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

func namesOf(engines []*Engine) string {
	names := []string{}
	for _, e := range engines {
		names = append(names, e.Role.String()+" "+e.Name)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

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

// change makes next the members. Added engines get their quarantines before a pick sees them. It needs f.mu.
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
	f.picking.drop() // no attempt begins on a removed engine from here on
	for _, e := range gone {
		if e.inFlight.Load() > 0 {
			f.draining = append(f.draining, e) // an engine that came back is no longer in the list
		}
	}
	f.forget(forgotten)
	if len(added) > 0 {
		select { // Run asks them before its next round; until they answer they are not ready
		case f.came <- struct{}{}:
		default:
		}
	}
}

// succeed returns the engine for an instance that is new to the fleet; old had its name, or is nil. An engine that
// drains or has departed is taken back under the same identity, so a source that loses an instance for a moment loses no
// facts and no tickets. If another process answers by now, its incarnation shows that. It needs f.mu.
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

// A late attempt may have begun, or the engine may be back.
func (f *Fleet) left(e *Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.gone.Load() && e.inFlight.Load() == 0 {
		f.draining = slices.DeleteFunc(f.draining, func(other *Engine) bool { return other == e })
		f.stays(e)
	}
}

// Draining returns the removed engines with attempts in flight, the first removed first. They are not picked or probed,
// and their tickets are not used.
func (f *Fleet) Draining() []*Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.draining)
}

// configure changes the settings. The process is the same, so the fleet keeps its facts, except stopped pairs, which a
// wrong kv_host causes. It needs f.mu.
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
