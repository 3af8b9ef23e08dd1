package turn

import (
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// foreign makes the failure of a leg whose answer belongs to another request. Some connection is out of step then, so all idle ones are closed.
func (r *reading) foreign() *upstream.LegError {
	r.h.deps.Legs.Close()
	return r.origin.Decode.LegError(upstream.Broken, upstream.ErrForeign)
}

// doubts is the only way in which one turn's failures count against tickets, releases and hand-overs. A failure alone shows nothing, because the
// client chooses the request. What failures show about engines goes through [fleet.Engine.Ended], and there a request of our own decides. With nil doubts a
// failure counts at once.
type doubts struct {
	legs  []*upstream.LegError                         // answered with 500, the oldest first: the engine or the request is at fault
	added [upstream.RoleDecode + 1][]func(spared bool) // by role, for legs that were answered with 5xx and carried more than the request
}

// failed notes a leg that failed. Once the same request has gone well, picks prefer other engines for a while.
func (d *doubts) failed(engine *fleet.Engine, leg *upstream.LegError) {
	if leg.AtFault() {
		d.carried(leg, func(spared bool) {
			if !spared {
				engine.Burden()
			}
		})
	}
	if d != nil && leg.Internal() {
		d.legs = append(d.legs, leg)
	}
}

// carried calls tell with what a failed leg shows about the ticket, release or hand-over that it carried. A 5xx shows nothing before the same
// request has gone well without it, so tell then waits.
func (d *doubts) carried(leg *upstream.LegError, tell func(spared bool)) {
	if d == nil || leg.Kind != upstream.Status {
		tell(false)
	} else {
		d.added[leg.Role] = append(d.added[leg.Role], tell)
	}
}

// settle ends the open doubts about legs to a role. If the last leg went well without what the earlier ones carried, that was at fault; spared says
// that nobody will know.
func (d *doubts) settle(role upstream.Role, spared bool) {
	all := d.added[role]
	d.added[role] = nil // before the calls: if one panics, the deferred end must not repeat it
	for _, tell := range all {
		tell(spared)
	}
}

// end ends all open doubts: nothing has shown what was at fault.
func (d *doubts) end() {
	d.legs = nil
	d.settle(upstream.RolePrefill, true)
	d.settle(upstream.RoleDecode, true)
}

// loadFailed looks at the failure of a decode leg that got a hand-over, and has shown nothing of an answer. failed says that decode may have been
// unable to load the KV, and only that the leg can have failed in no other way. Engines do not tell:
//
//   - With kv_load_failure_policy "fail" the leg gets a 500, or an error behind the first chunk. On vLLM 0.32's Responses the connection ends
//     behind the first events.
//   - With "recompute" it never gets an answer.
func loadFailed(leg *upstream.LegError, api body.API, begun bool) (failed, only bool) {
	only = leg.Kind == upstream.KVLoad || leg.Internal() || leg.Kind == upstream.Broken && begun && api == body.Responses
	return only || leg.Kind == upstream.Timeout && leg.AtFault(), only
}

// blame tells the fleet how the decode leg has ended. It is called once per leg. It returns the prefill whose KV decode may have failed to load,
// nil for none. doubts is nil if no leg follows that could show more.
//
// A failed load counts against the pair: nobody can tell which engine is at fault, and decode may serve well alone.
func (r *reading) blame(err error, doubts *doubts, prefillError bool) (unread *fleet.Incarnation) {
	decode, from, leg, own := r.origin.Decode.Engine(), r.origin.Prefill, upstream.LegOf(err), false
	if leg != nil {
		doubts.failed(decode, leg)
		failed, only := loadFailed(leg, r.leg.API, r.Stream != nil)
		if failed && r.unread {
			own, unread = only, from
			if prefillError || from.ApartFrom(r.origin.Decode) {
				doubts = nil // no leg without a hand-over follows; or this attempt is the pair's trial, which ends with it
			}
			doubts.carried(leg, func(spared bool) {
				if !spared {
					from.EndLoad(r.origin.Decode, pairs.Failed, "turn", r.record.ID(), "error", leg)
				}
			})
		}
	}
	decode.Ended(err, own)
	return unread
}
