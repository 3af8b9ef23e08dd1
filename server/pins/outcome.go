package pins

import (
	"errors"
	"net/http"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

func (p *Pins) tell(c *Claim, outcome pairs.Outcome) {
	pause, resumed := c.PairState.End(outcome, c.Account)
	if !resumed && pause == 0 && outcome != pairs.Failed {
		return
	}
	ttl, age := c.Holder.Engine().Instance().KVTTL, max(0, upstream.Elapsed(c.Ticket.FreshAsOf, time.Now()))
	attrs := []any{"turn", c.turn, "ticket_age", age.Round(100 * time.Millisecond).String(), "decoder_kv_ttl", ttl.String()}
	why := "prefill does not answer tickets of decode"
	switch {
	case resumed:
		why = "prefill answers tickets of decode again"
	case outcome == pairs.Failed:
		if why = "prefill answers 5xx to tickets of decode"; p.firstOf(c.Holder) {
			p.cfg.Logger.Warn("prefill refuses a ticket of decode: decode may have freed the blocks after its decoder_kv_blocks_ttl; "+
				"engines don't report this time, so decoder_kv_ttl (--decoder-kv-ttl) has to be the same", append(attrs, "prefill", named(c.Reader), "decode", named(c.Holder))...)
		}
	}
	what := "reuse nothing"
	if c.PairState.OfOneClient() {
		what = "reuse nothing of one client"
	}
	if resumed || pause > 0 {
		c.Reader.LeftAlone(c.Holder, what, pause, why, attrs...)
	}
}

func (p *Pins) firstOf(incarnation *fleet.Incarnation) bool {
	before, _ := p.warned.Swap(incarnation.Engine(), incarnation)
	return before != incarnation
}

func named(incarnation *fleet.Incarnation) string {
	return incarnation.Engine().Name + "@" + incarnation.ID()
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
