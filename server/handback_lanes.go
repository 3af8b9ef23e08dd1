package server

import (
	"container/list"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// begin removes from each lane that may send a leg the ticket that is next, and marks the lane busy.
func (h *handBacks) begin(now time.Time) (begun []*kept) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, l := range h.lanes {
		if l.busy {
			continue
		}
		if l.out.Len()+l.stored.Len() == 0 {
			delete(h.lanes, key)
			continue
		}
		switch {
		case !h.holds(l.decode): // the blocks are gone
			h.empty(l, nil)
			continue
		case !h.reads(l.prefill):
			h.empty(l, h.elsewhere)
			continue
		}
		switch l.prefill.Standing(l.decode) {
		case fleet.NoReuse: // tickets wait for turns, as they would without hand-back
			h.empty(l, nil)
		case fleet.Busy:
		default:
			if k := l.next(now); k != nil && l.prefill.Engine().TakesHandBack() {
				h.drop(k)
				l.busy, k.over = true, l.prefill.Engine().BeginHandBack()
				h.setsOut(k)
				begun = append(begun, k)
			}
		}
	}
	return begun
}

// next is the ticket that is to be handed back next, nil if none is due: first what no turn can use.
func (l *lane) next(now time.Time) *kept {
	if first := l.out.Front(); first != nil {
		return first.Value.(*kept)
	}
	if first := l.stored.Front(); first != nil && upstream.Elapsed(first.Value.(*kept).due, now) >= 0 {
		return first.Value.(*kept)
	}
	return nil
}

// holds reports whether a start of decode is the one that its engine was in last. One that was removed has its blocks still.
func (h *handBacks) holds(start *fleet.Start) bool {
	return !start.Over() && start.Engine().Last() == start
}

// reads reports whether a start of prefill may be sent legs.
func (h *handBacks) reads(start *fleet.Start) bool {
	engine := start.Engine()
	return h.deps.Fleet.Engine(upstream.RolePrefill, engine.Name) == engine && engine.Last() == start && !engine.Barred()
}

// elsewhere is the lane by which a ticket goes whose start of prefill is over: to the instance that the next turn of its conversation
// is sent to. Without a conversation none is known, and nil is returned.
func (h *handBacks) elsewhere(k *kept) *lane {
	if !k.homed {
		return nil
	}
	engine, err := h.deps.Fleet.Foresee(upstream.RolePrefill, fleet.Hint{Key: k.affinity, Model: k.model, Tokens: k.ids.Len()}, nil)
	if err != nil || !h.reads(engine.Last()) || !engine.Last().Known() {
		return nil
	}
	return h.laneOf(laneKey{engine.Last(), k.lane.decode})
}

// empty takes all tickets out of a lane. Those for which to knows another go there. Of the others the ids are dropped: a ticket in the
// store stays what it is, and one in no store is released. It needs h.mu.
func (h *handBacks) empty(l *lane, to func(*kept) *lane) {
	for _, tickets := range []*list.List{&l.out, &l.stored} {
		for tickets.Len() > 0 {
			k := tickets.Front().Value.(*kept)
			h.drop(k)
			if to != nil {
				if other := to(k); other != nil && other != l {
					k.lane = other
					h.kept[k.id] = k
					h.add(k)
					continue
				}
			}
			k.ids.Free()
			if k.ticket != nil {
				h.release(k)
			}
		}
	}
}

// release gives up a ticket that is in no store.
func (h *handBacks) release(k *kept) {
	k.lane.decode.Arrives(inBlocks(k.lane.decode, k.ticket.Tokens), k.ticket.CaughtUp, true)
	h.releaser.unuse(*k.ticket, k.model)
}
