package turn

import (
	"errors"
	"slices"
	"time"

	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// retryState is what a turn's attempts so far mean for the next one.
type retryState struct {
	last           attempted
	doubts         doubts          // failures that the request may be at fault for
	until          time.Time       // from when on no leg that was sent is followed by another, because the client has waited for long
	retries        int             // how many attempts have failed and were tried again
	earlier        pick.Earlier    // what they mean for the next pick
	again          []upstream.Role // roles whose leg was sent, failed, and was tried again
	withoutTicket  record.Reason   // why further attempts must not use a ticket, "" if they may
	withoutRelease bool            // further attempts must carry no release
}

// mayRestart reports whether a leg that was sent and failed may be followed by a new one: once for each role, and only if the client has
// not waited for long.
func (t *retryState) mayRestart(role upstream.Role) bool {
	return !slices.Contains(t.again, role) && time.Until(t.until) > 0
}

// attempted is what an attempt has got to: what its prefill leg carried, and what ties it to its decode instance.
type attempted struct {
	ticket        bool               // the prefill leg carried a ticket
	release       bool               // the prefill leg carried a piggybacked release
	anotherDecode bool               // the hand-over was bound to its decode engine, so that no other engine has been tried
	unread        *fleet.Incarnation // of prefill, which has handed over KV that decode has failed to load, nil if it has not
	pathTied      bool               // the path was chosen because of the KV that the decode engine held, so that it must be chosen anew
}

// caused reports whether a prefill leg failed because of what was added to the client's request: a ticket, a release, or ids that prefill
// did not compute. The next leg then goes without, whatever the status was, and costs no retry budget. That can't double the load for
// long: three such failures of a ticket stop reuse for the pair, one of a release pauses releases, and one of ids quarantines the
// instance.
func (a *attempted) caused(leg *upstream.LegError) bool {
	switch {
	case leg.Role != upstream.RolePrefill, errors.Is(leg.Err, upstream.ErrPrefillTimeout): // the client's time is used up
		return false
	case leg.Kind == upstream.IDEcho:
		return true
	}
	return (a.ticket || a.release) && (pins.OutcomeOf(leg) != pairs.Inconclusive || errors.Is(leg.Err, upstream.ErrTicketEnded))
}

// refresh forbids further attempts a ticket and a release. missed is why the failed attempt reused nothing.
func (t *retryState) refresh(missed record.Reason) {
	t.withoutTicket, t.withoutRelease = record.ReasonRetried, true
	if !t.last.ticket && missed != "" {
		t.withoutTicket = missed // the failed attempt had no ticket either, for this reason
	}
}
