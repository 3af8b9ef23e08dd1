package turn

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"carryover/sse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// legOf returns the failure of a leg in an error, nil if there is none.
func legOf(err error) *upstream.LegError {
	leg, _ := errors.AsType[*upstream.LegError](err)
	return leg
}

// Blame tells the fleet how a leg to an engine has ended, once per leg. err is nil for a good end. own says that a failure is our own fault,
// if it is one of the engine's answers: of what the leg carried besides the client's request.
func Blame(engine *fleet.Engine, err error, own bool) {
	leg := legOf(err)
	switch {
	case err == nil:
		engine.Health.Answered()
		engine.Health.Served()
		return
	case leg == nil: // the client or the server caused it
		return
	case leg.Kind == upstream.Dial:
		engine.Refused()
	case leg.Kind == upstream.Broken:
		engine.Broke()
	case leg.Paused():
		engine.Health.Paused()
	}
	switch {
	case own || !atFault(leg):
	case isInternal(leg):
		engine.Doubted(leg)
	default:
		engine.Health.Failed(leg)
	}
}

// isInternal reports whether an engine has answered a leg with 500, as vLLM does to whatever its handlers did not expect.
func isInternal(leg *upstream.LegError) bool {
	return leg.Status == http.StatusInternalServerError
}

// atFault reports whether an engine is to blame for a failure. It is not for what it refuses, 429 among it, nor for what it does
// not offer (501), nor where the client, a quarantine or the other leg has ended the leg; and how long an answer is, the client says.
func atFault(leg *upstream.LegError) bool {
	switch {
	case leg.Paused(), errors.Is(leg.Err, upstream.ErrStreamTooLong): // by an operator
		return false
	case leg.Role == upstream.RoleDecode && (errors.Is(leg.Err, upstream.ErrAnswerTooLarge) || errors.Is(leg.Err, sse.ErrOversize)):
		return false
	case leg.Kind == upstream.Timeout:
		return legOf(leg.Err) == nil
	case leg.Kind == upstream.Status:
		return leg.Status >= http.StatusInternalServerError && leg.Status != http.StatusNotImplemented
	}
	return leg.Kind == upstream.Broken || leg.Kind == upstream.Garbage || leg.Kind == upstream.KVLoad
}

// legError is the failure of a leg that was sent.
func legError(to *fleet.Incarnation, kind upstream.Kind, err error) *upstream.LegError {
	engine := to.Engine()
	return &upstream.LegError{Role: engine.Role, Instance: engine.Name, Kind: kind, Sent: true, Err: err}
}

// foreign is the failure of a leg whose answer belongs to another request. A connection is out of step then, and all are closed.
func (h *Handler) foreign(to *fleet.Incarnation) *upstream.LegError {
	h.deps.Legs.Close()
	return legError(to, upstream.Broken, upstream.ErrForeign)
}

// doubts are the door through which passes what one turn shows of tickets, releases and hand-overs. The turn's client chooses the
// request, so that a failure alone shows nothing. What turns show of engines passes [Blame], and a request of our own decides. nil doubts
// nothing.
type doubts struct {
	legs  []*upstream.LegError // those that were answered with 500, the oldest first: the engine or the request is at fault
	added []doubt              // of legs that were answered with 5xx and carried more than the request
}

// doubt is what a failed leg may show of what it carried, while that is open.
type doubt struct {
	role upstream.Role
	tell func(spared bool)
}

// failed notes how a leg to an engine has failed. Picks prefer others for a while, once the same request went well.
func (d *doubts) failed(engine *fleet.Engine, leg *upstream.LegError) {
	if atFault(leg) {
		d.carried(leg, func(spared bool) {
			if !spared {
				engine.Burden()
			}
		})
	}
	if d != nil && isInternal(leg) {
		d.legs = append(d.legs, leg)
	}
}

// carried has told what a failed leg shows of the ticket, release or hand-over that it carried. That an engine has answered 5xx shows nothing
// before the same request went well without it.
func (d *doubts) carried(leg *upstream.LegError, tell func(spared bool)) {
	if d == nil || leg.Kind != upstream.Status {
		tell(false)
	} else {
		d.added = append(d.added, doubt{leg.Role, tell})
	}
}

// without notes that a leg of the request went well that carried none of what earlier legs to the role did.
func (d *doubts) without(role upstream.Role) {
	d.added = slices.DeleteFunc(d.added, func(of doubt) bool {
		if of.role == role {
			of.tell(false)
		}
		return of.role == role
	})
}

// settle spares what is still open.
func (d *doubts) settle() {
	all := d.added
	*d = doubts{} // before a panic of one could have it told again
	for _, doubt := range all {
		doubt.tell(true)
	}
}

// loadFailed reports whether a decode leg that got a hand-over, and has shown nothing of an answer, may have failed because decode could not
// load the KV, and whether it may only have failed so. Engines do not tell: under kv_load_failure_policy "fail" the leg is a 500, an error
// behind the first chunk, or on vLLM 0.32's Responses the end of the connection behind the first events; under "recompute" it is never
// answered.
func loadFailed(leg *upstream.LegError, api body.API, begun bool) (failed, only bool) {
	only = leg.Kind == upstream.KVLoad || isInternal(leg) || leg.Kind == upstream.Broken && begun && api == body.Responses
	return only || leg.Kind == upstream.Timeout && atFault(leg), only
}

// blame tells the fleet how the decode leg has ended, once per leg, and returns whose KV decode may have failed to load, nil for none. A failed
// load is a fact about the pair: neither engine can be told to be at fault, and decode may serve alone well. A leg is spared that only took
// long: how long an answer takes that is no stream, the client says, and a well engine sends nothing of it before its end. doubts are nil if no
// leg follows that could show more.
func (r *reading) blame(err error, doubts *doubts, prefillError bool) (unread *fleet.Incarnation) {
	decode, from, leg := r.origin.Decode.Engine(), r.origin.Prefill, legOf(err)
	spared := r.whole && errors.Is(err, upstream.ErrFirstByteTimeout)
	if leg != nil && !spared {
		doubts.failed(decode, leg)
		failed, only := loadFailed(leg, r.leg.API, r.Stream != nil)
		if failed && r.unread {
			spared, unread = only, from
			if prefillError || from.ApartFrom(r.origin.Decode) {
				doubts = nil // no leg goes without a hand-over; or the attempt is the trial of the pair, which ends with it
			}
			doubts.carried(leg, func(spared bool) {
				outcome := pairs.Failed
				if spared {
					outcome = pairs.Inconclusive
				}
				r.loads(outcome, leg)
			})
		}
	}
	Blame(decode, err, spared)
	return unread
}

// loads tells the state of the pair how a hand-over has ended, and logs what follows from it.
func (r *reading) loads(outcome pairs.Outcome, err error) {
	prefill, decode := r.origin.Prefill, r.origin.Decode
	pause, all, resumed := prefill.EndLoad(decode, outcome)
	if pause == 0 && !resumed {
		return
	}
	from, to, log := prefill.Engine().Name, decode.Engine().Name, r.h.log(r.record)
	attrs, sentence := []any{"prefill", from, "decode", to, "tried_again_in", pause.String(), "error", err}, ""
	switch {
	case resumed:
		log.Info("decode loads prefill's KV again; hand-overs are on for this pair", attrs[:4]...)
		sentence = fmt.Sprintf("Decode %s loads what prefill %s hands over again; the pair is used from now on.", to, from)
	case all:
		log.Warn("several decode instances fail to load prefill's KV; it is left alone", attrs...)
		sentence = fmt.Sprintf("Prefill %s is left alone for %s: several decode instances fail to load what it hands over.", from, pause)
	default:
		log.Warn("decode fails to load prefill's KV; the pair is left alone", attrs...)
		sentence = fmt.Sprintf("Prefill %s and decode %s are left alone for %s: decode fails to load what prefill hands over.", from, to, pause)
	}
	if r.h.cfg.Tell != nil {
		r.h.cfg.Tell(sentence)
	}
}
