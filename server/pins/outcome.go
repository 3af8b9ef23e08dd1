package pins

import (
	"errors"
	"fmt"
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
	prefill, decode := c.Reader.Engine().Name, c.Holder.Engine()
	attrs := []any{"prefill", named(c.Reader), "decode", named(c.Holder), "turn", c.turn}
	if resumed {
		p.cfg.Logger.Info("prefill answers tickets of decode again; reuse is on for this pair", attrs...)
		p.cfg.tell(fmt.Sprintf("Prefill %s answers tickets of decode %s again; they are used from now on.", prefill, decode.Name))
		return
	}
	age := max(0, upstream.Elapsed(c.Ticket.FreshAsOf, time.Now()))
	attrs = append(attrs, "ticket_age", age.Round(100*time.Millisecond).String(), "decoder_kv_ttl", decode.Instance().KVTTL.String())
	why := "prefill does not answer tickets of decode"
	if outcome == pairs.Failed {
		if why = "prefill answers 5xx to tickets of decode"; p.firstOf(c.Holder) {
			p.cfg.Logger.Warn("prefill refuses a ticket of decode: decode may have freed the blocks after its decoder_kv_blocks_ttl; "+
				"engines don't report this time, so decoder_kv_ttl (--decoder-kv-ttl) has to be the same", attrs...)
		}
	}
	if pause == 0 {
		return
	}
	whose := "everybody"
	if c.PairState.OfOneClient() {
		whose = "one client"
	}
	p.cfg.Logger.Warn("reuse is off for a pair", append(attrs, "why", why, "for", whose, "tried_again_in", pause.String())...)
	p.cfg.tell(fmt.Sprintf("Prefill %s and decode %s reuse nothing for %s, for %s: %s.", prefill, decode.Name, pause, whose, why))
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
