package pins

import (
	"net/http"

	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/fleet/unused"
)

// Release is the release of an unused ticket, on a leg of our own or on a turn's prefill leg that carries no ticket of its own. Prefill reads none of its blocks and tells
// decode to free them (measured on vLLM 0.32: within a second, at no cost to the request).
type Release struct {
	unused    unused.Ticket
	holder    *fleet.Incarnation
	pairState *pairs.State
	of        queued
	counts    *releaseCounts
}

// Piggyback takes an unused ticket whose release a leg to prefill may carry, nil if there is none. It does not ask engines for their
// incarnations.
func (r *Releases) Piggyback(prefill *fleet.Incarnation) *Release {
	for _, holder := range r.deps.Fleet.Holders.Waiting() {
		last := prefill.Engine().Last()
		pairState := last.PairWith(holder)
		if u, ok := last.TakeUnused(holder, false); ok {
			return r.release(u, holder, pairState, &r.counts.piggybacked)
		}
	}
	return nil
}

// release begins the release of a ticket that was taken out of its queue.
func (r *Releases) release(u unused.Ticket, holder *fleet.Incarnation, pairState *pairs.State, counts *releaseCounts) *Release {
	of, _ := u.Owner.(queued) // all come from here
	of.move(Releasing)
	return &Release{unused: u, of: of, holder: holder, pairState: pairState, counts: counts}
}

// queued are the blocks of a ticket that waits for its release, or is on the leg.
type queued struct {
	states *states
	name   uint64
}

func (q queued) move(next State) { q.states.move(q.name, next) }

// Dropped implements unused.Owner.
func (q queued) Dropped(gone bool) {
	if gone {
		q.move(Void)
	} else {
		q.move(Expired)
	}
}

// queue has the ticket wait for another leg.
func (r *Release) queue() {
	r.of.move(ReleaseQueued)
	r.holder.Pins.Leave(r.unused)
}

// Offer returns the offer from which the connector makes a leg.
func (r *Release) Offer() upstream.TicketOffer {
	return upstream.TicketOffer{Ticket: r.unused.Params, Reading: r.unused.Reading, Holder: r.holder.Engine().Instance(), Release: true}
}

// Sent ends the release: its leg was answered, so that decode has freed the blocks.
func (r *Release) Sent() {
	r.arrived(true)
	r.counts.sent.Add(1)
}

// Requeue has the ticket wait for another leg, because nothing of this one was sent.
func (r *Release) Requeue() {
	r.queue()
	r.counts.requeued.Add(1)
}

// Malformed gives the release up, because no leg can be made of the ticket's params.
func (r *Release) Malformed() {
	r.arrived(false)
	r.counts.failed.Add(1)
}

// Failed ends the release: its leg, which is a turn's, has failed.
func (r *Release) Failed(leg *upstream.LegError) { r.counts.unsent(r.failed(leg)) }

// Spared ends the release: its leg has failed, and its request is at fault.
func (r *Release) Spared() {
	r.open()
	r.counts.unsent(false)
}

// failed decides what follows for an unused ticket whose leg failed. If nothing was sent, the ticket waits for another leg. Otherwise only a
// leg of our own may carry it again, because the release may be what made the engine fail or refuse the client's request. requeued says
// that the engine's scheduler has not seen the release.
func (r *Release) failed(leg *upstream.LegError) (requeued bool) {
	switch {
	case !leg.Sent, leg.Paused():
		r.queue()
		return true
	case leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError:
		// The engine refused the request before it was scheduled, most likely because of what the client sent. If the release were the
		// reason, every turn that carries it would fail.
		r.unused.Refused = true
		r.queue()
		return true
	case leg.Kind != upstream.Gone:
		r.pairState.ReleaseFailed(false)
	}
	r.open()
	return false
}

// open queues an unused ticket again whose leg may or may not have reached decode. A second leg makes it certain, and does no harm if the
// blocks are free (measured on vLLM 0.32). If the second leg fails too, the blocks stay pinned until decode's TTL ends.
func (r *Release) open() {
	if r.unused.Tried {
		r.arrived(false)
		return
	}
	r.unused.Tried, r.unused.Refused = true, true
	r.queue()
}

// arrived ends the ticket's transfer in the count of pinned tokens. freed says that decode has freed the blocks; otherwise its TTL will.
func (r *Release) arrived(freed bool) {
	next := Freed
	if !freed {
		next = Unknown
		r.holder.Pins.AddExpiring(r.unused.Tokens, r.unused.FreshAsOf)
	}
	r.of.move(next)
	r.holder.Pins.EndTransfer(r.unused.Tokens)
}
