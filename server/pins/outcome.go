package pins

import (
	"errors"
	"net/http"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// tell tells the pair's state how a leg with a ticket has ended, and operators of a ticket that was refused, and of a pair that is left alone or used
// again.
func (c *Claim) tell(outcome pairs.Outcome) {
	pause, resumed := c.PairState.End(outcome, c.Account)
	age := max(0, upstream.Elapsed(c.Ticket.FreshAsOf, time.Now())).Round(100 * time.Millisecond)
	attrs := []any{"turn", c.turn, "ticket_age", age.String(), "decoder_kv_ttl", c.Holder.Engine().Instance().KVTTL.String()}
	what, why := "reuse nothing", "prefill does not answer tickets of decode"
	if c.PairState.OfOneClient() {
		what = "reuse nothing of one client"
	}
	switch {
	case resumed:
		why = "prefill answers tickets of decode again"
	case outcome == pairs.Failed:
		why = "prefill answers 5xx to tickets of decode"
		c.pins.cfg.Logger.Warn("prefill refuses a ticket of decode: decode may have freed the blocks after its decoder_kv_blocks_ttl; "+
			"engines don't report this time, so decoder_kv_ttl (--decoder-kv-ttl) has to be the same",
			append(attrs, "prefill", c.Reader.Engine().Name, "decode", c.Holder.Engine().Name)...)
	}
	if resumed || pause > 0 {
		c.Reader.LeftAlone(c.Holder, what, pause, why, attrs...)
	}
}

// OutcomeOf returns what a failed prefill leg says about its ticket. A broken connection says nothing: a busy API server closes idle connections
// while legs are written to them, several at a time. If a ticket crashes the engine core, vLLM still answers 500 (entrypoints/launcher.py).
func OutcomeOf(leg *upstream.LegError) pairs.Outcome {
	switch {
	case errors.Is(leg.Err, upstream.ErrTicketEnded), leg.Paused(): // the leg may have had too little time
	case leg.Kind == upstream.Timeout:
		return pairs.Unanswered
	case leg.Kind == upstream.Status && leg.Status >= http.StatusInternalServerError:
		return pairs.Failed
	}
	return pairs.Inconclusive
}
