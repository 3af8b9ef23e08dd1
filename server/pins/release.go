package pins

import (
	"context"
	"errors"
	"net/http"
	"time"

	"carryover/server/record"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// readerHears is the longest time until an incarnation of prefill knows that its leg was dropped.
const readerHears = 5 * time.Second

// releasable reports whether a leg to an incarnation of prefill may release the pin's blocks now. own says that it is a leg of our own, not a turn's.
//
// If an incarnation was sent the ticket and has not answered, its leg may still read the blocks. A release would let decode put other KV into them.
// vLLM handles requests in order, so that incarnation sees the abort of the leg before the release. It keeps nothing of a request that was aborted
// before its KV arrived (v1/core/sched/scheduler.py, _update_from_kv_xfer_finished, 0.32). So only that incarnation may release the blocks, or any
// other one after its process has ended. Both wait until it knows that the leg was dropped (readerHears).
func (n *pin) releasable(prefill *fleet.Incarnation, own bool, now time.Time) bool {
	switch {
	case n.reader == nil:
		return own || !n.refused
	case !own || upstream.Elapsed(n.since, now) < readerHears:
		return false
	}
	return n.reader == prefill || n.reader.Ended() // ended, not merely removed from the fleet: a removed process may still read
}

// Release is a release on its leg. The leg is a turn's prefill leg without a ticket of its own, or a leg of our own. With remote_num_tokens 0 prefill
// reads none of the blocks and tells decode to free them (measured on vLLM 0.32: within a second, at no cost to the request). With
// bidirectional_kv_xfer decode pins the blocks of every finished request until its TTL, and keeps a core busy meanwhile. A leg of our own is dropped
// at its first event. At its end prefill would keep a block for its lease, and a core busy for 25 to 37 s (measured on vLLM 0.32).
type Release struct {
	pins      *Pins
	pin       *pin
	pairState *pairs.State
	own       bool
	counts    *record.Releases
	offer     upstream.TicketOffer
}

// Piggyback takes a pin whose release a turn's leg to prefill may carry, nil if there is none. It does not ask engines for their incarnations.
func (p *Pins) Piggyback(prefill *fleet.Incarnation) *Release {
	p.lock()
	defer p.mu.Unlock()
	for decode, h := range p.holders {
		if len(h.releases.due) > 0 && decode.Engine().Last() == decode {
			if r := p.release(prefill.Engine().Last(), decode, false); r != nil {
				return r
			}
		}
	}
	return nil
}

// release takes decode's oldest pin that a leg to prefill may release now, nil if there is none. The caller holds p.mu.
func (p *Pins) release(prefill, decode *fleet.Incarnation, own bool) *Release {
	h, state := p.holders[decode], prefill.PairWith(decode)
	if h == nil {
		return nil
	}
	counts, may := &p.counts.Piggybacked, state.CarriesReleases()
	if own {
		counts, may = &p.counts.Own, state.Releases()
	}
	for _, n := range h.releases.due {
		if may && n.releasable(prefill, own, p.now()) {
			p.move(n, freeing)
			offer := upstream.TicketOffer{Ticket: n.params, Reading: n.reading, Holder: decode.Engine().Instance(), Release: true}
			return &Release{p, n, state, own, counts, offer}
		}
	}
	return nil
}

// Offer returns the offer from which the connector makes a leg.
func (r *Release) Offer() upstream.TicketOffer { return r.offer }

func (r *Release) end(to state, count *uint64) {
	r.pins.mu.Lock()
	defer r.pins.mu.Unlock()
	*count++
	r.pins.move(r.pin, to)
}

// Sent ends a release whose leg was answered: decode has freed the blocks.
func (r *Release) Sent() { r.end(freed, &r.counts.Sent) }

// Requeue lets the pin wait for another leg, because nothing of this one was sent.
func (r *Release) Requeue() { r.end(due, &r.counts.Requeued) }

// Malformed gives the release up: no leg can be made of the ticket's params.
func (r *Release) Malformed() { r.end(lost, &r.counts.Failed) }

// Spared lets the pin wait for a second leg, because this one has failed and may or may not have reached decode. A second release does no harm if the
// blocks are free (measured on vLLM 0.32). If it fails too, decode's TTL frees the blocks.
func (r *Release) Spared() {
	to := due
	if r.pin.tried {
		to = lost
	}
	r.pin.tried, r.pin.refused = true, true
	r.end(to, &r.counts.Failed)
}

// Failed ends a release whose leg has failed. If nothing was sent, the pin waits for another leg. Otherwise only a leg of our own may carry it again:
// the release may have made the engine fail, or refuse a client's request.
func (r *Release) Failed(leg *upstream.LegError) {
	switch {
	case !leg.Sent, leg.Paused():
		r.Requeue()
	case leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError && !r.own:
		// The engine refused the request before it was scheduled, most likely because of what the client sent. If the release were the reason, every turn
		// that carries it would fail.
		r.pin.refused = true
		r.Requeue()
	default:
		if r.own || leg.Kind != upstream.Gone {
			r.pairState.ReleaseFailed(r.own)
		}
		r.Spared()
	}
}

// ReleaseOne releases one pin's blocks by a prefill leg that is dropped at its first event. It reports whether to go on with the next pin.
func (p *Pins) ReleaseOne(ctx context.Context, decode *fleet.Engine) bool {
	for _, prefill := range p.deps.Fleet.Engines(upstream.RolePrefill) {
		if prefill.Quarantined() || prefill.Health.Pauses() {
			continue
		}
		reader, holder := prefill.Current(ctx), decode.Current(ctx)
		p.lock()
		r := p.release(reader, holder, true)
		p.mu.Unlock()
		if r == nil {
			continue
		}
		leg, err := p.deps.Connector.Release(r.Offer(), r.pin.Model)
		if err != nil {
			r.Malformed()
			return true // its params are malformed; the next pin's may be fine
		}
		// A leg that has begun is not cut when the program ends, which waits for it: decode would keep the blocks.
		_, failed := p.send(context.WithoutCancel(ctx), prefill, leg, p.cfg.TrialTimeout, upstream.ErrReuseTimeout)
		if failed == nil {
			r.Sent()
			return true
		}
		if failed.Sent && !failed.Paused() {
			p.cfg.Logger.Warn("release failed; this pair releases nothing for a while", "prefill", prefill.Name, "decode", decode.Name, "error", failed)
		}
		r.Failed(failed)
		return false
	}
	return false
}

// send runs a leg of our own to prefill, and tells the fleet how it ended. failed is nil if it succeeded.
func (p *Pins) send(
	ctx context.Context, prefill *fleet.Engine, made upstream.ReleaseLeg, limit time.Duration, cause error,
) (answer upstream.PrefillAnswer, failed *upstream.LegError) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, cause)
	defer cancel()
	leg, run := upstream.Leg{Instance: prefill.Instance(), API: made.API, Body: rawjson.Pieces{made.Body}, RequestID: upstream.NewID()}, p.deps.Legs.HandBack
	if made.Whole {
		run = p.deps.Legs.Prefill
	}
	answer, err := run(ctx, leg)
	if err == nil && prefill.AnswerIDs.Foreign(leg.RequestID, answer.ID) {
		p.deps.Legs.Close()
		err = &upstream.LegError{Role: upstream.RolePrefill, Instance: prefill.Name, Kind: upstream.Broken, Sent: true, Err: upstream.ErrForeign}
	}
	p.deps.Blame(prefill, err)
	if err != nil && !errors.As(err, &failed) {
		failed = &upstream.LegError{Sent: true, Err: err} // it may have been sent
	}
	return answer, failed
}
