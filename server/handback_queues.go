package server

import (
	"container/list"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// begin removes from each lane that may send a leg the ticket that is next, and marks the lane busy.
func (h *handBacks) begin(now time.Time) (begun []*retainedTicket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, l := range h.queues {
		if l.busy {
			continue
		}
		h.end(l, now)
		if l.out.Len()+l.stored.Len() == 0 {
			delete(h.queues, key)
			continue
		}
		if now.Before(l.rests) || !h.ready(l, now) {
			continue
		}
		if k := l.next(now); k != nil && l.prefill.Engine().TakesHandBack() {
			h.drop(k)
			l.busy, k.over = true, l.prefill.Engine().BeginHandBack()
			h.setsOut(k)
			begun = append(begun, k)
		}
	}
	return begun
}

// ready reports whether the pair of a lane may be sent a leg now. Where it will not be for long, the lane's tickets go elsewhere; else
// they wait. It needs h.mu.
func (h *handBacks) ready(l *pairQueue, now time.Time) bool {
	switch {
	case l.decode.Over(): // the blocks are gone
		h.empty(l, func(*retainedTicket) *pairQueue { return nil }, false)
		return false
	case !h.holds(l.decode): // an engine that refused a connection answers again within seconds, mostly as it was
		l.rests = now.Add(restsFor)
		return false
	case !h.reads(l.prefill):
		if l.away.IsZero() {
			l.away = now
		}
		if h.gone(l.prefill) || now.Sub(l.away) >= awayFor {
			h.empty(l, h.elsewhere, true)
		}
		l.rests = now.Add(restsFor)
		return false
	}
	l.away = time.Time{}
	status := l.prefill.StatusWith(l.decode)
	if status == fleet.NoReuse || l.prefill.Forgets() != "" { // the pair is tried again some time
		h.empty(l, h.elsewhere, true)
		l.rests = now.Add(restsFor)
		return false
	}
	return status != fleet.Busy
}

// keeps reports whether a ticket that is handed back to a start of prefill can be found there by its turn, and says once of each start
// that it can't.
func (h *handBacks) keeps(prefill *fleet.Incarnation, tokens int) bool {
	why := prefill.Forgets()
	if most := prefill.Engine().KVTokens(); why == "" && (most == 0 || tokens <= most) {
		return true
	}
	if why != "" {
		h.mu.Lock()
		warned := h.warned[prefill.Engine().Name] == prefill
		h.warned[prefill.Engine().Name] = prefill
		h.mu.Unlock()
		if !warned {
			h.cfg.Logger.Warn("prefill does not keep what is handed back to it; tickets serve turns instead", "prefill", named(prefill), "why", why)
		}
	}
	return false
}

// next is the ticket that is to be handed back next, nil if none is due: first what no turn can use.
func (l *pairQueue) next(now time.Time) *retainedTicket {
	if first := l.out.Front(); first != nil {
		return first.Value.(*retainedTicket)
	}
	if first := l.stored.Front(); first != nil && upstream.Elapsed(first.Value.(*retainedTicket).due, now) >= 0 {
		return first.Value.(*retainedTicket)
	}
	return nil
}

// holds reports whether a start of decode is the one that its engine was in last. One that was removed has its blocks still.
func (h *handBacks) holds(incarnation *fleet.Incarnation) bool {
	return !incarnation.Over() && incarnation.Engine().Last() == incarnation
}

// reads reports whether a start of prefill may be sent legs.
func (h *handBacks) reads(incarnation *fleet.Incarnation) bool {
	return !h.gone(incarnation) && incarnation.Engine().Last() == incarnation
}

// gone reports whether a start of prefill is never sent a leg again, as far as is known.
func (h *handBacks) gone(incarnation *fleet.Incarnation) bool {
	engine := incarnation.Engine()
	return incarnation.Over() || engine.Quarantined() || h.deps.Fleet.Engine(upstream.RolePrefill, engine.Name) != engine
}

// elsewhere is the lane by which a ticket goes whose own serves no more: to the instance that the next turn of its conversation
// is sent to. Without a conversation none is known, and nil is returned.
func (h *handBacks) elsewhere(k *retainedTicket) *pairQueue {
	if !k.homed {
		return nil
	}
	engine, err := h.deps.Fleet.Predict(upstream.RolePrefill, fleet.Hint{Key: k.affinity, Model: k.model, Tokens: k.ids.Len()}, nil)
	if err != nil {
		return nil
	}
	last := engine.Last()
	if !last.Known() || !h.reads(last) || last.StatusWith(k.queue.decode) == fleet.NoReuse || last.Forgets() != "" {
		return nil
	}
	return h.queueOf(pairKey{last, k.queue.decode})
}

// empty takes tickets out of a lane that does not serve them. Those for which to knows another go there. Of the others one that is in
// no store is released, and one in the store stays in the lane, for as long as stays says that it may be handed back yet. It needs h.mu.
func (h *handBacks) empty(l *pairQueue, to func(*retainedTicket) *pairQueue, stays bool) {
	for _, tickets := range []*list.List{&l.out, &l.stored} {
		for at := tickets.Front(); at != nil; {
			k := at.Value.(*retainedTicket)
			at = at.Next()
			other := to(k)
			switch {
			case other == l, other == nil && k.ticket == nil && stays:
				continue
			case other != nil:
				h.drop(k)
				k.queue = other
				h.add(k)
				continue
			}
			h.drop(k)
			k.ids.Free()
			if k.ticket != nil {
				h.release(k)
			}
		}
	}
}

// end drops what of a lane is past its time: no leg may name it any more. It needs h.mu.
func (h *handBacks) end(l *pairQueue, now time.Time) {
	for _, tickets := range []*list.List{&l.out, &l.stored} {
		for at := tickets.Front(); at != nil && upstream.Elapsed(at.Value.(*retainedTicket).ends, now) >= 0; at = tickets.Front() {
			k := at.Value.(*retainedTicket)
			h.drop(k)
			k.ids.Free()
			if k.ticket != nil {
				h.release(k)
			}
		}
	}
}

// release gives up a ticket that is in no store.
func (h *handBacks) release(k *retainedTicket) {
	h.arrived(k, true)
	h.releaser.unuse(*k.ticket, k.model)
}
