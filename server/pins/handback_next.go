package pins

import (
	"slices"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/pairs"
)

// begin removes the next ticket from each queue that may send a leg, and marks the queue busy.
func (h *handBackQueues) begin(now time.Time) (begun []*retainedTicket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, l := range h.queues {
		if l.busy {
			continue
		}
		h.end(l, now)
		if l.out.Len()+len(l.stored) == 0 {
			delete(h.queues, key)
			continue
		}
		if now.Before(l.rests) || !h.ready(l, now) {
			continue
		}
		if k := l.next(now); k != nil && l.prefill.Engine().TakesHandBack() {
			h.drop(k)
			l.busy, k.leg.over = true, l.prefill.Engine().BeginHandBack()
			h.setsOut(k)
			begun = append(begun, k)
		}
	}
	return begun
}

// ready reports whether the pair of a queue may be sent a leg now. If the pair will be unable for long, the queue's tickets go to other
// queues; otherwise they wait. The caller holds h.mu.
func (h *handBackQueues) ready(l *pairQueue, now time.Time) bool {
	switch {
	case l.decode.Over(): // the blocks are gone
		h.empty(l, func(*retainedTicket) *pairQueue { return nil }, false)
		return false
	case !holds(l.decode): // an engine that refused a connection usually answers again within seconds, in the same incarnation
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
	if status == pairs.NoReuse || l.prefill.PrefixCache.Forgets() != "" { // the pair will be tried again later
		h.empty(l, h.elsewhere, true)
		l.rests = now.Add(restsFor)
		return false
	}
	return status != pairs.Busy
}

// takes reports whether an answer's ticket can be handed back.
func (h *handBackQueues) takes(answer Answer, ticket *convcache.Ticket) bool {
	if most := facts.ContextLength(answer.Prefill.Engine().Models(), answer.Model); most > 0 && ticket.Tokens >= most-1 {
		// The context is full, so that no turn can follow. And the leg's first token would be its last, so that prefill would keep the
		// blocks until their lease ends.
		return false
	}
	return h.keeps(answer.Prefill, ticket.Tokens)
}

// keeps reports whether prefill will still have what is handed back to this incarnation when a turn needs it. If not, it warns once for
// each incarnation.
func (h *handBackQueues) keeps(prefill *fleet.Incarnation, tokens int) bool {
	why := prefill.PrefixCache.Forgets()
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

// next returns the ticket to hand back next, nil if none is due. Tickets that no turn can use come first.
func (l *pairQueue) next(now time.Time) *retainedTicket {
	if first := l.out.Front(); first != nil {
		return first.Value.(*retainedTicket)
	}
	if first := l.stored.first(); first != nil && upstream.Elapsed(first.due, now) >= 0 {
		return first
	}
	return nil
}

// holds reports whether an incarnation of decode is its engine's last known one. An engine that was removed still has its blocks.
func holds(incarnation *fleet.Incarnation) bool {
	return !incarnation.Over() && incarnation.Engine().Last() == incarnation
}

// reads reports whether legs may be sent to an incarnation of prefill.
func (h *handBackQueues) reads(incarnation *fleet.Incarnation) bool {
	return !h.gone(incarnation) && incarnation.Engine().Last() == incarnation
}

// gone reports whether, as far as is known, no leg will ever be sent to an incarnation of prefill again.
func (h *handBackQueues) gone(incarnation *fleet.Incarnation) bool {
	engine := incarnation.Engine()
	return incarnation.Over() || engine.Quarantined() || h.fleet.Engine(upstream.RolePrefill, engine.Name) != engine
}

// elsewhere returns another queue for a ticket whose own queue can't serve it: the queue of the instance to which the conversation's next
// turn will be sent. It returns nil if there is none, or if the ticket has no conversation.
func (h *handBackQueues) elsewhere(k *retainedTicket) *pairQueue {
	if !k.homed {
		return nil
	}
	engine, err := h.fleet.Choose(upstream.RolePrefill, fleet.Hint{Key: k.from.affinity, Model: k.from.model, Tokens: k.ids.Len()}, nil)
	if err != nil {
		return nil
	}
	last := engine.Last()
	if !last.Known() || !h.reads(last) || last.StatusWith(k.queue.decode) == pairs.NoReuse || last.PrefixCache.Forgets() != "" {
		return nil
	}
	return h.queueOf(pairKey{last, k.queue.decode})
}

// empty takes tickets out of a queue that can't serve them. If to returns another queue for a ticket, the ticket moves there. Otherwise a
// ticket that is not in the store is released, and a stored ticket leaves the queue. If stays is set, a stored ticket stays in the queue,
// because it may still be handed back. The caller holds h.mu.
func (h *handBackQueues) empty(l *pairQueue, to func(*retainedTicket) *pairQueue, stays bool) {
	for _, k := range l.all() {
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
			k.releaseBy(h.releases)
		}
	}
}

// end drops the tickets of a queue that are past their deadline, so that no later leg names them. The caller holds h.mu.
func (h *handBackQueues) end(l *pairQueue, now time.Time) {
	for at := l.out.Front(); at != nil && upstream.Elapsed(at.Value.(*retainedTicket).ends, now) >= 0; at = l.out.Front() {
		k := at.Value.(*retainedTicket)
		h.drop(k)
		k.ids.Free()
		k.releaseBy(h.releases)
	}
	// What is past its deadline is due, and so are those before it.
	for k := l.stored.first(); k != nil && upstream.Elapsed(k.ends, now) >= 0; k = l.stored.first() {
		h.drop(k)
		k.ids.Free()
	}
}

// all lists the tickets of a queue, those outside of the store first.
func (l *pairQueue) all() (all []*retainedTicket) {
	for at := l.out.Front(); at != nil; at = at.Next() {
		all = append(all, at.Value.(*retainedTicket))
	}
	return append(all, slices.SortedFunc(slices.Values(l.stored), func(a, b *retainedTicket) int { return a.due.Compare(b.due) })...)
}

// give releases those tickets of a decode incarnation that wait for a hand-back and are not in the store.
func (h *handBackQueues) give(decode *fleet.Incarnation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, l := range h.queues {
		if key.decode != decode {
			continue
		}
		for l.out.Len() > 0 {
			k := l.out.Front().Value.(*retainedTicket)
			h.drop(k)
			k.ids.Free()
			k.releaseBy(h.releases)
		}
	}
}

// giveUpOlder releases the tickets that wait for a hand-back, are not in the store, and are of other epochs.
func (h *handBackQueues) giveUpOlder(epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.queues {
		for at := l.out.Front(); at != nil; {
			k := at.Value.(*retainedTicket)
			if at = at.Next(); k.ticket.Epoch != epoch {
				h.drop(k)
				k.ids.Free()
				k.releaseBy(h.releases)
			}
		}
	}
}

// releaseBy gives up a ticket that is not in the store.
func (k *retainedTicket) releaseBy(r *Releases) {
	k.arrived()
	r.Unuse(*k.ticket, k.from.model)
}

// arrived ends the ticket's transfer in the count of pinned tokens.
func (k *retainedTicket) arrived() {
	k.leg.settled = true
	k.queue.decode.Pins.EndTransfer(inBlocks(k.queue.decode, k.ticket.Tokens))
}
