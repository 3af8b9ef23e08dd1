package quarantine

import (
	"context"
	"maps"
	"sync/atomic"

	"carryover/convcache"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// SharedLineages shares with other replicas which KV is in doubt. An error costs a delay: the caller tries again within a second.
type SharedLineages interface {
	Quarantine(ctx context.Context, q convcache.Quarantine) error
	// Quarantines returns the quarantines of all replicas.
	Quarantines(ctx context.Context) ([]convcache.Quarantine, error)
}

// Tickets are the tickets of this replica.
type Tickets interface {
	// GiveUpInDoubt gives up the tickets whose lineage is in doubt, and has their blocks released.
	GiveUpInDoubt(ctx context.Context, inDoubt func(convcache.Lineage) bool)
}

// ExposureWatch shares with other replicas which KV is in doubt, gives up the tickets that descend from it, and tells operators which engines
// have such KV in their caches. Only one goroutine uses it.
type ExposureWatch struct {
	WatchConfig
	lineages   *Lineages
	tickets    Tickets
	shared     SharedLineages                     // nil without Redis
	background func(what, id string, work func()) // runs work in the background
	logged     map[*fleet.Incarnation]struct{}    // exposed incarnations that the log has mentioned
	sweeping   atomic.Bool
	swept      atomic.Int64 // lineages.changes at the last sweep
}

// NewExposureWatch returns a watch, which gives tickets up in the background; shared is nil without Redis.
func NewExposureWatch(
	cfg WatchConfig, lineages *Lineages, tickets Tickets, shared SharedLineages, background func(what, id string, work func()),
) *ExposureWatch {
	return &ExposureWatch{
		WatchConfig: cfg, lineages: lineages, tickets: tickets, shared: shared, background: background, logged: map[*fleet.Incarnation]struct{}{},
	}
}

// Changed receives a value when more KV is in doubt than before.
func (w *ExposureWatch) Changed() <-chan struct{} { return w.lineages.changed }

// Compare is one round. It first tells the other replicas what was found since the last round, because they go on using such KV meanwhile.
func (w *ExposureWatch) Compare(ctx context.Context) {
	if w.shared != nil {
		w.exchange(ctx)
	}
	for _, engine := range w.Fleet.Engines(upstream.RolePrefill) {
		if last := engine.Last(); last.Known() && last.Quarantined() { // a replica of an older version shares only this
			w.lineages.records.Quarantine(addressOf(last), last.ID())
		}
	}
	for _, engine := range w.Fleet.Engines(upstream.RolePrefill) {
		if last := engine.Last(); !last.Quarantined() && w.lineages.Quarantined(last) {
			w.Logger.Error("prefill is quarantined until it is restarted: another replica has found that it does not compute the ids that it is sent",
				"prefill", engine.Name, "incarnation", last.ID())
			w.tellShared(engine)
		}
	}
	w.say()
	w.sweep(ctx)
}

// exchange takes over the findings of other replicas, and tells them those that they don't know.
func (w *ExposureWatch) exchange(ctx context.Context) {
	bounded, cancel := storetime.Limit(ctx, w.StoreTimeout)
	defer cancel()
	all, err := w.shared.Quarantines(bounded)
	if err != nil {
		return // the next round comes soon
	}
	for _, q := range w.lineages.records.Adopt(all) {
		bounded, cancel := storetime.Limit(ctx, w.StoreTimeout)
		if err := w.shared.Quarantine(bounded, q); err != nil {
			w.Logger.Debug("quarantine is not shared", "error", err)
		}
		cancel()
	}
}

// say logs, once for each, the incarnations whose legs carry a quarantine's cache_salt.
func (w *ExposureWatch) say() {
	exposed := map[*fleet.Incarnation]struct{}{}
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, engine := range w.Fleet.Engines(role) {
			if _, is := w.lineages.Exposed(engine); !is {
				continue
			}
			last := engine.Last()
			exposed[last] = struct{}{}
			if _, logged := w.logged[last]; !logged {
				w.logged[last] = struct{}{}
				w.Logger.Error("engine has KV of a prefill under quarantine in its cache; its legs have a cache_salt until it is restarted",
					"role", role.String(), "instance", engine.Name, "incarnation", last.ID())
				w.tell("The prefix cache of " + role.String() + " " + engine.Name + " has had KV of a quarantined prefill; its legs carry a cache_salt of their own until it is restarted.")
			}
		}
	}
	maps.DeleteFunc(w.logged, func(incarnation *fleet.Incarnation, _ struct{}) bool {
		_, remains := exposed[incarnation]
		return !remains && incarnation.Engine().Last().Known() // an incarnation that is not known yet may be the same
	})
}

// sweep gives up this replica's tickets that descend from a quarantined incarnation. No replica would use them, but decode's blocks would stay
// pinned. Tickets that are put later are checked at the put. It works in the background, because there may be many tickets.
func (w *ExposureWatch) sweep(ctx context.Context) {
	changes := w.lineages.changes.Load()
	if changes == w.swept.Load() || !w.sweeping.CompareAndSwap(false, true) {
		return
	}
	w.background("task", "quarantine", func() {
		defer w.sweeping.Store(false)
		defer w.swept.Store(changes)
		w.tickets.GiveUpInDoubt(ctx, w.lineages.InDoubt)
	})
}

// Sweeping reports whether tickets are being given up now.
func (w *ExposureWatch) Sweeping() bool { return w.sweeping.Load() }
