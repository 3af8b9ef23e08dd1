package turn

import (
	"errors"
	"fmt"
	"net/http"

	"carryover/sse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Blame tells the fleet how a leg to an engine has ended, once per leg. err is nil for a good end. own says that a failure is our own fault,
// if it is one of the engine's answers: of what the leg carried besides the client's request.
func Blame(engine *fleet.Engine, err error, own bool) {
	if err == nil {
		engine.Health.Answered()
		engine.Health.Served()
		return
	}
	var leg *upstream.LegError
	if !errors.As(err, &leg) || leg.Role != engine.Role { // the client, the server or the other leg caused it
		return
	}
	switch {
	case leg.Kind == upstream.Dial:
		engine.Refused()
	case leg.Kind == upstream.Broken:
		engine.Broke()
	case leg.Paused():
		engine.Health.Paused()
	}
	switch {
	case own || !atFault(leg):
	case leg.Kind == upstream.Status && leg.Status == http.StatusInternalServerError:
		engine.Doubted(leg)
	default:
		engine.Health.Failed(leg)
	}
}

// atFault reports whether an engine is to blame for a failure. It is not for what it refuses, 429 among it, nor for what it does
// not offer (501), nor where the client, a quarantine or the other leg has ended the leg; and how long an answer is, the client says.
func atFault(leg *upstream.LegError) bool {
	var other *upstream.LegError
	if leg.Paused() {
		return false // an operator has paused the engine
	}
	if errors.Is(leg.Err, upstream.ErrStreamTooLong) ||
		leg.Role == upstream.RoleDecode && (errors.Is(leg.Err, upstream.ErrAnswerTooLarge) || errors.Is(leg.Err, sse.ErrOversize)) {
		return false
	}
	switch leg.Kind {
	case upstream.Broken, upstream.Garbage, upstream.KVLoad:
		return true
	case upstream.Timeout:
		return !errors.As(leg.Err, &other)
	case upstream.Status:
		return leg.Status >= http.StatusInternalServerError && leg.Status != http.StatusNotImplemented
	}
	return false
}

// legError is the failure of a leg that was sent.
func legError(engine *fleet.Engine, kind upstream.Kind, err error) *upstream.LegError {
	return &upstream.LegError{Role: engine.Role, Instance: engine.Name, Kind: kind, Sent: true, Err: err}
}

// foreign is the failure of a leg whose answer belongs to another request. A connection is out of step then, and all are closed.
func (h *Handler) foreign(engine *fleet.Engine) *upstream.LegError {
	h.deps.Legs.Close()
	return legError(engine, upstream.Broken, upstream.ErrForeign)
}

// doubts are the door through which what turns show of tickets, releases and hand-overs passes: those of one turn. Its client chooses the
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
func (d *doubts) failed(engine *fleet.Engine, err error) {
	var leg *upstream.LegError
	if !errors.As(err, &leg) || leg.Role != engine.Role {
		return
	}
	if atFault(leg) {
		d.carried(leg, func(spared bool) {
			if !spared {
				engine.Burden()
			}
		})
	}
	if d != nil && leg.Kind == upstream.Status && leg.Status == http.StatusInternalServerError {
		d.legs = append(d.legs, leg)
	}
}

// carried has told what a failed leg shows of the ticket, release or hand-over that it carried. That an engine has answered 5xx shows nothing
// before the same request went well without it.
func (d *doubts) carried(leg *upstream.LegError, tell func(spared bool)) {
	if d == nil || leg.Kind != upstream.Status {
		tell(false)
		return
	}
	d.added = append(d.added, doubt{leg.Role, tell})
}

// without notes that a leg of the request went well that carried none of what earlier legs to the role did.
func (d *doubts) without(role upstream.Role) {
	all := d.added
	d.added = nil
	for _, doubt := range all {
		if doubt.role == role {
			doubt.tell(false)
		} else {
			d.added = append(d.added, doubt)
		}
	}
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
	switch leg.Kind {
	case upstream.KVLoad:
		failed = true
	case upstream.Status:
		failed = leg.Status == http.StatusInternalServerError
	case upstream.Broken:
		failed = begun && api == body.Responses
	case upstream.Timeout:
		return atFault(leg), false
	}
	return failed, failed
}

// blameDecode tells the fleet how a decode leg has ended, once per leg, and returns the incarnation of prefill whose KV decode may have failed
// to load, nil if it has not. A failed load is a fact about the pair: neither engine can be told to be at fault, and decode may serve alone
// well. A leg is spared that only took long: how long an answer takes that is no stream, the client says, and a well engine sends nothing of
// it before its end. bound says that no leg of the turn goes without a hand-over.
func (h *Handler) blameDecode(d *decoding, err error, doubts *doubts, bound bool, turn string) (unread *fleet.Incarnation) {
	decode, from := d.origin.Decode.Engine(), d.origin.Prefill
	var leg *upstream.LegError
	spared := d.whole && errors.Is(err, upstream.ErrFirstByteTimeout)
	if !spared {
		doubts.failed(decode, err)
	}
	if !spared && d.unread && errors.As(err, &leg) && leg.Role == decode.Role {
		failed, only := loadFailed(leg, d.leg.API, d.Stream != nil)
		if spared = only; failed {
			unread = from
			if bound || from.ApartFrom(d.origin.Decode) { // the trial of a pair ends with its attempt
				doubts = nil
			}
			doubts.carried(leg, func(spared bool) {
				outcome := pairs.Failed
				if spared {
					outcome = pairs.Inconclusive
				}
				h.loads(d, outcome, turn, leg)
			})
		}
	}
	Blame(decode, err, spared)
	return unread
}

// loads tells the state of a pair how a hand-over has ended, and logs what follows from it.
func (h *Handler) loads(d *decoding, outcome pairs.Outcome, turn string, err error) {
	prefill, decode := d.origin.Prefill, d.origin.Decode
	pause, all, resumed := prefill.EndLoad(decode, outcome)
	if pause == 0 && !resumed {
		return
	}
	from, to := prefill.Engine().Name, decode.Engine().Name
	attrs, sentence := []any{"prefill", from, "decode", to, "turn", turn}, ""
	if resumed {
		h.cfg.Logger.Info("decode loads prefill's KV again; hand-overs are on for this pair", attrs...)
		sentence = fmt.Sprintf("Decode %s loads what prefill %s hands over again; the pair is used from now on.", to, from)
	} else if attrs = append(attrs, "tried_again_in", pause.String(), "error", err); all {
		h.cfg.Logger.Warn("several decode instances fail to load prefill's KV; it is left alone", attrs...)
		sentence = fmt.Sprintf("Prefill %s is left alone for %s: several decode instances fail to load what it hands over.", from, pause)
	} else {
		h.cfg.Logger.Warn("decode fails to load prefill's KV; the pair is left alone", attrs...)
		sentence = fmt.Sprintf("Prefill %s and decode %s are left alone for %s: decode fails to load what prefill hands over.", from, to, pause)
	}
	if h.cfg.Tell != nil {
		h.cfg.Tell(sentence)
	}
}
