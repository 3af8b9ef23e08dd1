package pins

import (
	"container/heap"
	"slices"
	"time"

	"carryover/account"
	"carryover/convcache"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// pin is the blocks that decode keeps for one answer. Pins.mu guards it.
type pin struct {
	Answer
	id        convcache.TicketID // the name of the blocks, see Name
	holder    *holder            // nil if the blocks are gone, or if the replica that made the ticket counts them
	tokens    int                // in whole blocks
	epoch     int64
	freshAsOf time.Time
	deadline  time.Time // of the ticket

	state   state
	ids     *proof.Retained // of a ticket that can be handed back, else nil
	until   time.Time       // when a stored ticket is handed back, or released if it has no ids, unless a turn has taken it; zero for never
	params  []byte          // while it waits for a release, or is on its leg
	reading any             // upstream.TicketParams.Reading of params, nil if unknown

	since  time.Time          // when its release became due for the first time
	reader *fleet.Incarnation // the incarnation of prefill that was sent the ticket and has not answered; see releasable
	tried  bool               // a leg with its release has failed; only one of our own follows

	next time.Time            // when something has to be done, zero for never
	at   int                  // index in Pins.soonest, -1 if it is not in it
	in   *[]*pin              // the list that contains it, nil for none
	old  *account.Place[*pin] // in holder.stored
	kept *account.Place[*pin] // in Pins.retained
}

// state says where a pin's ticket or blocks are.
type state uint8

// The states. From freed on, a pin no longer counts.
const (
	unseen    state = iota
	claimed         // out of the store, for one taker; nothing of it was sent
	putting         // on its way to the store; turns may already find it
	stored          // in the store, or may be
	late            // stored, and about to be taken out of the store for its release or hand-back
	sent            // a leg that reads the blocks may have reached prefill
	due             // out of the store, waiting for a leg that releases the blocks
	freeing         // on a leg that releases the blocks
	lost            // only decode's TTL will free the blocks, and they count until then
	freed           // decode has freed the blocks, as the answer of a leg shows
	elsewhere       // another replica has the ticket
	void            // nothing to count: decode's incarnation or its TTL has ended, or another pin needed the room
	states
)

// String returns the state's name in logs.
func (s state) String() string {
	return [states]string{"unseen", "claimed", "putting", "stored", "late", "sent", "due", "freeing", "lost", "freed", "elsewhere", "void"}[s]
}

var follow = [states][]state{ //nolint:gochecknoglobals // a table that nothing changes
	unseen:  {claimed, stored},
	claimed: {putting, sent, due, lost, void},
	putting: {claimed, stored, due, lost, void},
	stored:  {claimed, stored, late, lost, elsewhere, void},
	late:    {claimed, stored, lost, elsewhere, void},
	sent:    {putting, due, freed, lost, void},
	due:     {freeing, lost, void},
	freeing: {due, freed, lost, void},
	lost:    {claimed, void},
}

// move changes the state of a pin, its place in lists and the sums of pinned tokens. Nothing else does. A change that is not in follow is a defect of
// this package: the pin becomes lost, and decode's TTL frees the blocks. The caller holds p.mu.
func (p *Pins) move(n *pin, to state) {
	switch h := n.holder; {
	case n.state == void: // its incarnation ended while a leg had it
		return
	case to >= freed, h == nil && to <= sent:
	case h == nil, h.incarnation.Over():
		to = void
	}
	if !slices.Contains(follow[n.state], to) {
		if p.strict {
			panic("pins: " + n.state.String() + " becomes " + to.String())
		}
		p.cfg.Logger.Error("a ticket's blocks change their state in a way that the table of states forbids", "from", n.state.String(), "to", to.String())
		to = lost
	}
	p.leave(n)
	n.state = to
	if h := n.holder; h != nil && to < freed {
		h.tokens[to] += n.tokens
	}
	switch to {
	case stored:
		if h := n.holder; h != nil {
			n.old = h.stored.Add(n.Account, int64(n.tokens), n)
		}
		if n.ids != nil {
			n.kept = p.retained.Add(n.Account, int64(n.ids.Len()), n)
		}
	case late:
		n.enlist(&p.late)
	case due:
		n.enlist(&n.holder.due)
	case lost:
		n.drop()
	case freed, elsewhere, void:
		if n.drop(); to == freed {
			p.spend(n.id)
		}
		delete(p.pins, n.id)
	}
	p.schedule(n)
}

// leave takes a pin out of its lists and sums. The caller holds p.mu.
func (p *Pins) leave(n *pin) {
	if h := n.holder; h != nil && n.state != unseen && n.state < freed {
		h.tokens[n.state] -= n.tokens
	}
	if n.old != nil {
		n.holder.stored.Remove(n.old)
		n.old = nil
	}
	if n.kept != nil {
		p.retained.Remove(n.kept)
		n.kept = nil
	}
	n.enlist(nil)
}

// drop frees what only a hand-back or a release needs. A ticket that turns can use then waits for them.
func (n *pin) drop() {
	n.ids.Free()
	if n.ids, n.params, n.reading = nil, nil, nil; n.Conversation != "" {
		n.until = time.Time{}
	}
}

// enlist moves a pin from the list that contains it to the end of another, nil for none. The caller holds p.mu.
func (n *pin) enlist(to *[]*pin) {
	if n.in != nil {
		i := slices.Index(*n.in, n)
		*n.in = slices.Delete(*n.in, i, i+1)
	}
	if n.in = to; to != nil {
		*to = append(*to, n)
	}
}

// schedule sets when something has to be done about a pin. The caller holds p.mu.
func (p *Pins) schedule(n *pin) {
	if n.at >= 0 {
		heap.Remove(&p.soonest, n.at)
	}
	n.next = time.Time{}
	switch n.state {
	case stored:
		n.next = n.deadline
		if !n.until.IsZero() && n.in == nil && n.until.Before(n.deadline) {
			n.next = n.until
		}
	case late, due:
		n.next = n.deadline
	case lost:
		n.next = n.freshAsOf.Add(n.holder.incarnation.Engine().Instance().KVTTL)
	}
	if !n.next.IsZero() {
		heap.Push(&p.soonest, n)
	}
}

// pass does what is due. Stored tickets of older epochs are given up, once for each epoch, because no turn may use them. Tickets past their deadline
// become lost. Lost blocks become void when decode's TTL has freed them. Stored tickets that no turn has taken in time wait for their hand-back or
// release. The caller holds p.mu.
func (p *Pins) pass(now time.Time) {
	reached := func(t time.Time) bool { return !t.IsZero() && upstream.Elapsed(t, now) >= 0 }
	for incarnation, h := range p.holders {
		if !incarnation.Over() {
			continue
		}
		for _, n := range p.pins {
			if n.holder == h {
				p.move(n, void)
			}
		}
		delete(p.holders, incarnation)
	}
	if epoch := p.deps.Epoch.Now(); epoch > p.swept {
		p.swept = epoch
		for _, n := range p.pins {
			if n.state == stored && n.epoch < epoch {
				p.giveUp(n, record.ReasonQuarantined)
			}
		}
	}
	for len(p.soonest) > 0 && reached(p.soonest[0].next) {
		switch n := p.soonest[0]; {
		case n.state == lost:
			if p.schedule(n); reached(n.next) { // the TTL may be another by now
				p.move(n, void)
			}
		case reached(n.deadline):
			p.move(n, lost)
		case n.ids == nil:
			p.move(n, late)
		default:
			n.enlist(&p.ready)
			p.schedule(n)
		}
	}
}

// maxSpent bounds a generation of the ids of freed blocks: 3 MB.
const maxSpent = 1 << 16

// spend remembers freed blocks, in two generations, for as long as a ticket that names them may live. The caller holds p.mu.
func (p *Pins) spend(id convcache.TicketID) {
	if now := p.now(); len(p.spent) >= maxSpent || now.Sub(p.since) >= p.cfg.TTL+marginWithoutExpiry {
		p.spentBefore, p.spent, p.since = p.spent, map[convcache.TicketID]struct{}{}, now
	}
	p.spent[id] = struct{}{}
}

// isSpent reports whether decode has freed the blocks. The caller holds p.mu.
func (p *Pins) isSpent(id convcache.TicketID) bool {
	_, young := p.spent[id]
	_, old := p.spentBefore[id]
	return young || old
}

// knows reports whether the blocks have or had a pin. The caller holds p.mu.
func (p *Pins) knows(id convcache.TicketID) bool { return p.pins[id] != nil || p.isSpent(id) }

// Before implements account.Ordered.
func (n *pin) Before(other *pin) bool { return n.next.Before(other.next) }

// Place implements account.Ordered.
func (n *pin) Place() *int { return &n.at }

// holder is an incarnation of decode with the sums of its pins. Pins.mu guards it.
type holder struct {
	incarnation *fleet.Incarnation
	tokens      [states]int
	stored      account.Pool[*pin] // weighed by tokens
	due         []*pin             // that wait for a leg that releases their blocks
	releasing   bool               // such a leg of our own is under way
	hurried     bool               // releases do not wait for a leg of a turn
	leaving     time.Time          // when the engine was first seen leaving, zero if it stays

	// For the budget.
	told   time.Time // when the log last had that tickets were given up for it
	stood  time.Time // the reading since which the engine runs nothing while requests wait; zero if it does not stand
	others []int     // the pinned tokens of the other replicas
	heard  time.Time // when they were received, zero for never
	read   time.Time // the engine's last reading
	then   int       // what this replica's tickets pinned at that reading
}

// holder returns the holder of an incarnation, nil if the incarnation is unknown or over. The caller holds p.mu.
func (p *Pins) holder(incarnation *fleet.Incarnation) *holder {
	if !incarnation.Known() || incarnation.Over() {
		return nil
	}
	h := p.holders[incarnation]
	if h == nil {
		h = &holder{incarnation: incarnation}
		p.holders[incarnation] = h
	}
	return h
}
