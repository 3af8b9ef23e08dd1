package turn

import (
	"errors"
	"fmt"
	"net/http"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/pairs"
)

// loadFailed reports whether a decode leg that got a hand-over, and has shown nothing of an answer, may have failed because decode could not
// load the KV, and whether it may only have failed so. Engines do not tell: under kv_load_failure_policy "fail" the leg is a 500, an error
// behind the first chunk, or on vLLM 0.32's Responses the end of the connection behind the first events; under "recompute" it is never
// answered.
func loadFailed(leg *upstream.LegError, api body.API, begun bool) (failed, only bool) {
	switch leg.Kind {
	case upstream.KVLoad:
		return true, true
	case upstream.Status:
		failed = leg.Status == http.StatusInternalServerError
		return failed, failed
	case upstream.Broken:
		failed = begun && api == body.Responses
		return failed, failed
	case upstream.Timeout:
		return atFault(leg), false
	}
	return false, false
}

// blameDecode tells the fleet how a decode leg has ended, once per leg. A failed load is a fact about the pair: neither engine can be told
// to be at fault, and decode may serve alone well. A leg is spared that only took long. bound says that no leg of the turn goes without a
// hand-over.
func (r *legRunner) blameDecode(d *decoding, tried *attempted, turn string, err error, spared bool, doubts *doubts, bound bool) {
	decode := d.origin.Decode.Engine()
	var leg *upstream.LegError
	failed := false
	if !spared {
		doubts.failed(decode, err)
	}
	if !spared && d.unread && errors.As(err, &leg) && leg.Role == decode.Role {
		if failed, spared = loadFailed(leg, d.leg.API, d.Stream != nil); failed {
			tried.unread = d.origin.Prefill
		}
	}
	if failed {
		in := doubts
		if bound || d.origin.Prefill.ApartFrom(d.origin.Decode) { // the trial of a pair ends with its attempt
			in = nil
		}
		in.carried(leg, func(spared bool) {
			outcome := pairs.Failed
			if spared {
				outcome = pairs.Inconclusive
			}
			r.loads(d, outcome, turn, leg)
		})
	}
	Blame(decode, err, spared)
}

// loads tells the state of a pair how a hand-over has ended, and logs what follows from it.
func (r *legRunner) loads(d *decoding, outcome pairs.Outcome, turn string, err error) {
	prefill, decode := d.origin.Prefill, d.origin.Decode
	pause, all, resumed := prefill.EndLoad(decode, outcome)
	if pause == 0 && !resumed {
		return
	}
	from, to := prefill.Engine().Name, decode.Engine().Name
	attrs := []any{"prefill", from, "decode", to, "turn", turn}
	switch {
	case resumed:
		r.cfg.Logger.Info("decode loads prefill's KV again; hand-overs are on for this pair", attrs...)
		r.cfg.tell(fmt.Sprintf("Decode %s loads what prefill %s hands over again; the pair is used from now on.", to, from))
	case all:
		r.cfg.Logger.Warn("several decode instances fail to load prefill's KV; it is left alone", append(attrs, "tried_again_in", pause.String(), "error", err)...)
		r.cfg.tell(fmt.Sprintf("Prefill %s is left alone for %s: several decode instances fail to load what it hands over.", from, pause))
	default:
		r.cfg.Logger.Warn("decode fails to load prefill's KV; the pair is left alone", append(attrs, "tried_again_in", pause.String(), "error", err)...)
		r.cfg.tell(fmt.Sprintf("Prefill %s and decode %s are left alone for %s: decode fails to load what prefill hands over.", from, to, pause))
	}
}
