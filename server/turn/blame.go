package turn

import (
	"errors"
	"net/http"
	"time"

	"carryover/sse"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// blamePrefill is Blame for the prefill leg of an attempt, which began at the given time. An engine that has let a leg reach its time limit,
// and has answered no other leg since, leaves the rotation at once, whatever its health check says: an LMCache sender whose receiver does
// not listen answers no leg any more, and its /health stays 200 (measured, 0.5.6).
func blamePrefill(engine *fleet.Engine, err error, own bool, began time.Time) {
	Blame(engine, err, own)
	if errors.Is(err, upstream.ErrPrefillTimeout) {
		engine.Health.Unanswered(began)
	}
}

// Blame tells the fleet how a leg to an engine has ended, once per leg. err is nil for a good end. own says that a failure is our own fault,
// if it is one of the engine's answers: of what the leg carried besides the client's request.
func Blame(engine *fleet.Engine, err error, own bool) {
	if err == nil {
		engine.Health.Answered()
		engine.Health.Served()
		return
	}
	var leg *upstream.LegError
	switch {
	case !errors.As(err, &leg) || leg.Role != engine.Role: // the client, the server or the other leg caused it
	case leg.Kind == upstream.Dial:
		engine.Refused()
	default:
		switch {
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

// tookLong reports whether err says that decode has not finished an answer in time that is no stream. How long such an answer takes, the
// client says: a well engine sends nothing of it before its end.
func tookLong(stream bool, err error) bool {
	return !stream && errors.Is(err, upstream.ErrFirstByteTimeout)
}

// failed returns the failure of the leg, which was sent, with the rest of what is known of it.
func (d *decoding) failed(leg upstream.LegError) error {
	leg.Role, leg.Instance, leg.Sent = upstream.RoleDecode, d.origin.Decode.Engine().Name, true
	return &leg
}
