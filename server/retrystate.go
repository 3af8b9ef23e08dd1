package server

import (
	"errors"
	"slices"

	"carryover/server/pins"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// retryState is what a turn's attempts so far mean for the next one.
type retryState struct {
	last           attempted
	failed         *upstream.LegError
	again          []upstream.Role // roles whose leg was sent, failed, and was tried again
	excluded       []*fleet.Engine // engines that are not picked any more
	withoutTicket  record.Reason   // why further attempts must not use a ticket, "" if they may
	withoutRelease bool            // further attempts must carry no release
	noPrefill      bool            // further attempts do not ask prefill
	refreshed      bool            // the engines have been asked for their models during this turn
	prefillFailed  bool            // a prefill leg was sent and failed
	notAnnounced   bool            // a prefill instance was left because its KV is not announced for the decode instance
}

// attempted is what an attempt has got to: what its prefill leg carried, and what ties it to its decode instance.
type attempted struct {
	prefill       *fleet.Incarnation // nil if it had none
	ticket        bool               // the prefill leg carried a ticket
	release       bool               // the prefill leg carried a piggybacked release
	anotherDecode bool               // the hand-over was bound to its decode engine, so that no other engine has been tried
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

// whyAlone returns the reason why decode serves without prefill.
func (t *retryState) whyAlone(quarantined bool) string {
	switch {
	case t.prefillFailed:
		return record.WhyFailed
	case t.notAnnounced:
		return record.WhyNotAnnounced
	case quarantined:
		return record.WhyQuarantined
	}
	return record.WhyUnavailable
}

// excludes reports whether an engine must not be picked any more.
func (t *retryState) excludes(e *fleet.Engine) bool { return slices.Contains(t.excluded, e) }

// gaveUp returns how many engines of a role are not picked any more.
func (t *retryState) gaveUp(role upstream.Role) (n int) {
	for _, e := range t.excluded {
		if e.Role == role {
			n++
		}
	}
	return n
}

// lastOr returns the failure that led to this attempt, if there was one, because it says more than err, which says that no instance is
// left. Otherwise it returns err.
func (t *retryState) lastOr(err error) error {
	if t.failed != nil {
		return t.failed
	}
	return err
}

// refresh forbids further attempts a ticket and a release. missed is why the failed attempt reused nothing.
func (t *retryState) refresh(missed record.Reason) {
	t.withoutTicket, t.withoutRelease = record.ReasonRetried, true
	if !t.last.ticket && missed != "" {
		t.withoutTicket = missed // the failed attempt had no ticket either, for this reason
	}
}
