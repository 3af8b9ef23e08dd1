package fleet

import (
	"context"

	"carryover/upstream"
)

// LegError makes the failure of a leg that was sent to this incarnation.
func (i *Incarnation) LegError(kind upstream.Kind, err error) *upstream.LegError {
	return &upstream.LegError{Role: i.engine.Role, Instance: i.engine.Name, Kind: kind, Sent: true, Err: err}
}

// Ended records how a leg to the engine has ended. It is called once per leg; err is nil for a good end. own says that Carryover is at fault for
// what the engine answers, because the leg carried more than the client's request. A connection that was refused or broke counts nevertheless.
func (e *Engine) Ended(err error, own bool) {
	leg := upstream.LegOf(err)
	switch {
	case err == nil:
		e.Health.Answered()
		e.Health.Served()
		return
	case leg == nil: // the client or the server caused it
		return
	case leg.Kind == upstream.Dial:
		e.Refused()
	case leg.Kind == upstream.Broken:
		e.fleet.broke(e.BaseURL)
	case leg.Paused():
		e.Health.Paused()
	}
	switch {
	case own || !leg.AtFault():
	case leg.Internal():
		e.doubted(leg)
	default:
		e.Health.Failed(leg)
	}
}

// doubted records a failed leg whose cause may be the request. The circuit opens only if a request of Carryover's own fails, too, or if the
// engine refuses Carryover's key: then the leg decides, because the engine accepted the client's key.
func (e *Engine) doubted(leg *upstream.LegError) {
	if e.Health.Doubted() {
		go func() { e.Health.Asked(e.Last().Capability.Try(context.Background(), leg)) }() // within 5 s
	}
}
