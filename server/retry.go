package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// maxDials is how many instances of a role are tried when connections are
// refused or time out.
const maxDials = 3

// retryState is what the attempts of a turn have come to.
type retryState struct {
	failed         *upstream.LegError
	again          []upstream.Role    // legs that were sent, failed, and tried again
	excluded       []*fleet.Engine    // that are not picked any more
	anotherDecode  bool               // the attempt was tied to its decode engine, so that no other has been tried
	pathTied       bool               // the path was chosen for what that engine held, so that it is to be chosen anew
	withoutTicket  Reason             // why a further attempt must not use a ticket
	sentTicket     bool               // the last prefill leg carried one
	sentRelease    bool               // the last prefill leg carried an unused one
	withoutRelease bool               // a further attempt must not carry one
	noPrefill      bool               // no further attempt asks prefill
	refreshed      bool               // the engines have been asked for their models on this turn
	prefillFailed  bool               // a prefill leg was sent and failed
	prefill        *fleet.Incarnation // of the last attempt, nil if it had none
	notAnnounced   bool               // a prefill instance was left because its KV is not announced for the decode instance
}

// whyAlone says why decode is to serve without prefill.
func (t *retryState) whyAlone(quarantined bool) string {
	switch {
	case t.prefillFailed:
		return whyFailed
	case t.notAnnounced:
		return whyNotAnnounced
	case quarantined:
		return whyQuarantined
	}
	return whyUnavailable
}

// excludes reports whether an engine is not to be picked any more.
func (t *retryState) excludes(e *fleet.Engine) bool { return slices.Contains(t.excluded, e) }

// gaveUp is how many engines of a role are not picked any more.
func (t *retryState) gaveUp(role upstream.Role) (n int) {
	for _, e := range t.excluded {
		if e.Role == role {
			n++
		}
	}
	return n
}

// exclude has no further attempt pick the engine of a leg.
func (s *turns) exclude(t *retryState, leg *upstream.LegError) {
	if e := s.deps.Fleet.Engine(leg.Role, leg.Instance); e != nil {
		t.excluded = append(t.excluded, e)
	}
}

// lastOr returns the failure that led to this attempt, which says more than that
// no instance is left, or else err.
func (t *retryState) lastOr(err error) error {
	if t.failed != nil {
		return t.failed
	}
	return err
}

// again decides whether a failed attempt is followed by another, and prepares it:
//
//   - nothing of the leg was sent: another instance;
//   - something may have been sent: at most once per leg, with a new request id
//     and no previous KV, which may be spent;
//   - prefill failed, and not over what we have put into its leg: as the operator has chosen;
//   - bytes have reached the client, or the client has gone: never.
func (s *turns) again(ctx context.Context, t *turn, err error) bool {
	var leg *upstream.LegError
	retry := &t.retry
	if ctx.Err() != nil || t.committed || !errors.As(err, &leg) || !leg.Retryable() && !ours(retry, leg) && !unreadable(leg) {
		return false
	}
	if leg == retry.failed { // pick's own answer: no instance is left, or there is no room for decode alone
		return false
	}
	retry.failed = leg
	if leg.Role == upstream.RolePrefill && !ours(retry, leg) {
		return s.afterPrefill(t, leg)
	}
	if !leg.Sent {
		s.exclude(retry, leg)
		switch {
		case leg.Role == upstream.RolePrefill: // it was barred since it was picked
			return true
		case retry.pathTied:
			return true
		case !retry.anotherDecode: // decode.go has already offered the hand-over to other decode engines
			return false
		}
	}
	switch echo := leg.Kind == upstream.Receipt; {
	case echo && t.record.Retries >= maxDials:
		return false
	case echo: // each of those bars a start
	case !s.mayRestart(t, leg.Role) || !ours(retry, leg) && !s.budget.take(t.share.client):
		return false
	default:
		retry.again = append(retry.again, leg.Role)
	}
	t.refresh()
	unanswered := errors.Is(leg.Err, upstream.ErrReuseTimeout)
	if unanswered && retry.sentTicket {
		retry.withoutTicket = ReasonNotBidirectional
	}
	if unanswered && len(s.deps.Fleet.Engines(upstream.RolePrefill)) > 1 {
		s.exclude(retry, leg)
	}
	return true
}

// refresh gives the next attempt's legs a request id of their own, and no previous KV.
func (t *turn) refresh() {
	t.legID = newID()
	t.retry.withoutTicket, t.retry.withoutRelease = ReasonRetried, true
	if reason := t.record.Reuse.Reason; !t.retry.sentTicket && reason != "" {
		t.retry.withoutTicket = reason // it had none to begin with
	}
}

// mayRestart reports whether a leg that was sent and failed may be followed by a
// fresh one: once, and not when the client has already waited for long.
func (s *turns) mayRestart(t *turn, role upstream.Role) bool {
	return !slices.Contains(t.retry.again, role) && s.patient(t)
}

// patient reports whether the client has not waited for long yet.
func (s *turns) patient(t *turn) bool { return time.Since(t.record.Began) < s.cfg.FirstByteTimeout/2 }

// ours reports whether a prefill leg failed over what it carried besides the
// client's request: a ticket, an unused one, or ids that prefill did not compute.
// The fresh leg goes without, whatever the status was, and at no cost to the
// budget. That can't double the load for long: three such failures stop the link,
// one of a release pauses releasing, and one of ids bars the instance.
func ours(t *retryState, leg *upstream.LegError) bool {
	switch {
	case leg.Role != upstream.RolePrefill, errors.Is(leg.Err, upstream.ErrPrefillTimeout): // all the time that the client has
		return false
	case leg.Kind == upstream.Receipt:
		return true
	}
	return (t.sentTicket || t.sentRelease) && (outcomeOf(leg) != fleet.Inconclusive || errors.Is(leg.Err, upstream.ErrTicketEnded))
}

// unreadable reports whether prefill has answered what is no answer. Where its leg goes out together with decode's, decode can't do
// without it any more, and the turn begins anew.
func unreadable(leg *upstream.LegError) bool {
	return leg.Role == upstream.RolePrefill && leg.Kind == upstream.Garbage
}
