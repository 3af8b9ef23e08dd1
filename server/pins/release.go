package pins

import (
	"context"
	"errors"
	"time"

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
		return own || !n.tried
	case !own || upstream.Elapsed(n.since, now) < readerHears:
		return false
	}
	return n.reader == prefill || n.reader.Ended() // ended, not merely removed from the fleet: a removed process may still read
}

// Piggyback takes a pin whose release a turn's leg to prefill may carry. The claim carries nothing if there is none. Piggyback does not ask engines
// for their incarnations.
//
// With remote_num_tokens 0 prefill reads none of the blocks and tells decode to free them (measured on vLLM 0.32: within a second, at no cost to the
// request). With bidirectional_kv_xfer decode pins the blocks of every finished request until its TTL, and keeps a core busy meanwhile.
func (p *Pins) Piggyback(prefill *fleet.Incarnation) (c Claim) {
	p.lock()
	defer p.mu.Unlock()
	for decode, h := range p.holders {
		if len(h.due) > 0 && decode.Engine().Last() == decode {
			if c = p.ride(prefill.Engine().Last(), decode, false); c.Carries() {
				break
			}
		}
	}
	return c
}

// ride takes decode's oldest pin that a leg to prefill may release now. The caller holds p.mu.
func (p *Pins) ride(prefill, decode *fleet.Incarnation, own bool) (c Claim) {
	h, state := p.holders[decode], prefill.PairWith(decode)
	if h == nil || own && !state.Releases() || !own && !state.CarriesReleases() {
		return c
	}
	for _, n := range h.due {
		if n.releasable(prefill, own, p.now()) {
			p.move(n, freeing)
			offer := upstream.TicketOffer{Ticket: n.params, Reading: n.reading, Holder: decode.Engine().Instance(), Release: true}
			return Claim{Release: offer, Holder: decode, Reader: prefill, PairState: state, pins: p, released: n, own: own}
		}
	}
	return c
}

// released ends a release. One that has failed may have reached decode. So a second leg, one of our own, sends it again, which does no harm if the
// blocks are free (measured on vLLM 0.32). If that fails too, decode's TTL frees the blocks.
func (p *Pins) released(c *Claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, counts, to := c.released, &p.counts.Piggybacked, due
	if c.own {
		counts = &p.counts.Own
	}
	switch c.progress {
	case unsent:
		counts.Requeued++
	case answered:
		counts.Done++
		to = freed
	default:
		counts.Failed++
		if n.tried || c.progress == refused { // refused: no leg can be made of its params
			to = lost
		}
		n.tried = true
	}
	p.move(n, to)
}

// ReleaseOne releases one pin's blocks by a prefill leg that is dropped at its first event: at its end prefill would keep a block for its lease, and
// a core busy for 25 to 37 s (measured on vLLM 0.32). It reports whether to go on with the next pin.
func (p *Pins) ReleaseOne(ctx context.Context, decode *fleet.Engine) bool {
	for _, prefill := range p.deps.Fleet.Engines(upstream.RolePrefill) {
		if prefill.Quarantined() || prefill.Health.Pauses() {
			continue
		}
		reader, holder := prefill.Current(ctx), decode.Current(ctx)
		p.lock()
		c := p.ride(reader, holder, true)
		p.mu.Unlock()
		if !c.Carries() {
			continue
		}
		leg, err := p.deps.Connector.Release(c.Release, c.released.Model)
		if err != nil {
			c.GiveUp()
			return true // its params are malformed; the next pin's may be fine
		}
		defer c.End(ctx, nil)
		c.Sent()
		// A leg that has begun is not cut when the program ends, which waits for it: decode would keep the blocks.
		_, failed := p.send(context.WithoutCancel(ctx), reader, leg, p.cfg.TrialTimeout, upstream.ErrReuseTimeout)
		if failed == nil {
			c.Conclude(pairs.Answered)
			return true
		}
		if failed.Sent && !failed.Paused() {
			p.cfg.Logger.Warn("release failed; this pair releases nothing for a while", "prefill", prefill.Name, "decode", decode.Name, "error", failed)
		}
		c.Doubted(failed)(false)
		return false
	}
	return false
}

// send runs a leg of our own to prefill, and tells the fleet how it ended. failed is nil if it succeeded.
func (p *Pins) send(
	ctx context.Context, reader *fleet.Incarnation, made upstream.ReleaseLeg, limit time.Duration, cause error,
) (answer upstream.PrefillAnswer, failed *upstream.LegError) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, cause)
	defer cancel()
	prefill, run := reader.Engine(), p.deps.Legs.HandBack
	if made.Whole {
		run = p.deps.Legs.Prefill
	}
	answer, err := run(ctx, upstream.Leg{
		Instance: prefill.Instance(), API: made.API, Body: rawjson.Pieces{made.Body}, RequestID: upstream.NewID(), AnswerIDs: &prefill.AnswerIDs,
	})
	prefill.Ended(err, true)
	if err != nil && !errors.As(err, &failed) {
		failed = reader.LegError(upstream.Broken, err) // it may have been sent
	}
	return answer, failed
}
