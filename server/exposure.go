package server

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"

	"carryover/convcache"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// errInDoubt says that a ticket's KV may come from an incarnation that is under quarantine.
var errInDoubt = errors.New("the KV may come from a prefill instance that is under quarantine")

// exposureWatch shares with other replicas which KV is in doubt, gives up the tickets that descend from it, and tells operators which engines
// have such KV in their caches.
type exposureWatch struct {
	cfg        *Config
	fleet      *fleet.Fleet
	shared     SharedLineages // nil without Redis
	lineages   *lineages
	tickets    *ticketMaker
	background *background
	logged     map[*fleet.Incarnation]struct{} // exposed incarnations that the log has mentioned
	sweeping   atomic.Bool
	swept      atomic.Int64 // lineages.changes at the last sweep
}

// compare is one round. It first tells the other replicas what was found since the last round, because they go on using such KV meanwhile.
func (w *exposureWatch) compare(ctx context.Context) {
	if w.shared != nil {
		w.exchange(ctx)
	}
	for _, engine := range w.fleet.Engines(upstream.RolePrefill) {
		if last := engine.Last(); last.Known() && last.Quarantined() { // a replica of an older version shares only this
			w.lineages.records.Quarantine(addressOf(last), last.ID())
		}
	}
	for _, engine := range w.fleet.Engines(upstream.RolePrefill) {
		if last := engine.Last(); !last.Quarantined() && w.lineages.quarantined(last) {
			w.cfg.Logger.Error("prefill is quarantined until it is restarted: another replica has found that it does not compute the ids that it is sent",
				"prefill", engine.Name, "incarnation", last.ID())
		}
	}
	w.say()
	w.sweep(ctx)
}

// exchange takes over the findings of other replicas, and tells them those that they don't know.
func (w *exposureWatch) exchange(ctx context.Context) {
	bounded, cancel := storetime.Limit(ctx, w.cfg.StoreTimeout)
	defer cancel()
	all, err := w.shared.Quarantines(bounded)
	if err != nil {
		return // the next round comes soon
	}
	for _, q := range w.lineages.records.Adopt(all) {
		bounded, cancel := storetime.Limit(ctx, w.cfg.StoreTimeout)
		if err := w.shared.Quarantine(bounded, q); err != nil {
			w.cfg.Logger.Debug("quarantine is not shared", "error", err)
		}
		cancel()
	}
}

// say logs, once for each, the incarnations whose legs carry a quarantine's cache_salt.
func (w *exposureWatch) say() {
	exposed := map[*fleet.Incarnation]struct{}{}
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, engine := range w.fleet.Engines(role) {
			last := engine.Last()
			if !last.Known() {
				continue
			}
			if _, is := w.lineages.records.Exposed(addressOf(last), last.ID()); !is {
				continue
			}
			exposed[last] = struct{}{}
			if _, logged := w.logged[last]; !logged {
				w.logged[last] = struct{}{}
				w.cfg.Logger.Error("engine has KV of a prefill under quarantine in its cache; its legs have a cache_salt until it is restarted",
					"role", role.String(), "instance", engine.Name, "incarnation", last.ID())
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
func (w *exposureWatch) sweep(ctx context.Context) {
	changes := w.lineages.changes.Load()
	if changes == w.swept.Load() || !w.sweeping.CompareAndSwap(false, true) {
		return
	}
	w.background.run("task", "quarantine", func() {
		defer w.sweeping.Store(false)
		defer w.swept.Store(changes)
		w.tickets.handBacks.giveUpInDoubt()
		for _, p := range w.tickets.ledger.descendants(w.lineages.inDoubt) {
			if ctx.Err() != nil {
				return
			}
			bounded, cancel := storetime.Limit(ctx, w.cfg.StoreTimeout)
			w.tickets.giveUp(bounded, p.key, p.id, p.model)
			cancel()
		}
	})
}

// descendants lists the tickets in the store whose lineage is in doubt.
func (l *ledger) descendants(inDoubt func(convcache.Lineage) bool) (all []pin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pins {
		if inDoubt(p.lineage) {
			all = append(all, *p)
		}
	}
	return all
}

// giveUpInDoubt releases the tickets that wait for a hand-back, are not in the store, and descend from a quarantined incarnation.
func (h *handBacks) giveUpInDoubt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.queues {
		for at := l.out.Front(); at != nil; {
			k := at.Value.(*retainedTicket)
			if at = at.Next(); h.lineages.inDoubt(k.ticket.Lineage) {
				h.drop(k)
				k.ids.Free()
				h.release(k)
			}
		}
	}
}
