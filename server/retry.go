package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"carryover/server/pins"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// maxDials is how many instances of a role are tried while connections are refused or time out.
const maxDials = 3

// retryState is what a turn's attempts so far mean for the next one.
type retryState struct {
	failed         *upstream.LegError
	again          []upstream.Role    // roles whose leg was sent, failed, and was tried again
	excluded       []*fleet.Engine    // engines that are not picked any more
	anotherDecode  bool               // the hand-over was bound to its decode engine, so that no other engine has been tried
	pathTied       bool               // the path was chosen because of the KV that the decode engine held, so that it must be chosen anew
	withoutTicket  record.Reason      // why further attempts must not use a ticket, "" if they may
	sentTicket     bool               // the last prefill leg carried a ticket
	sentRelease    bool               // the last prefill leg carried a piggybacked release
	withoutRelease bool               // further attempts must carry no release
	noPrefill      bool               // further attempts do not ask prefill
	refreshed      bool               // the engines have been asked for their models during this turn
	prefillFailed  bool               // a prefill leg was sent and failed
	prefill        *fleet.Incarnation // the last attempt's prefill, nil if it had none
	notAnnounced   bool               // a prefill instance was left because its KV is not announced for the decode instance
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

// exclude keeps further attempts from picking the engine of a leg.
func (s *turns) exclude(t *retryState, leg *upstream.LegError) {
	if e := s.deps.Fleet.Engine(leg.Role, leg.Instance); e != nil {
		t.excluded = append(t.excluded, e)
	}
}

// lastOr returns the failure that led to this attempt, if there was one, because it says more than err, which says that no instance is
// left. Otherwise it returns err.
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
//   - prefill failed, but not because of what was added to its leg: as the operator has chosen (afterPrefill);
//   - bytes have reached the client, or the client has gone: never.
func (s *turns) again(ctx context.Context, t *turn, err error) bool {
	var leg *upstream.LegError
	retry := &t.retry
	if ctx.Err() != nil || t.committed || !errors.As(err, &leg) || !leg.Retryable() && !ours(retry, leg) && !unreadable(leg) {
		return false
	}
	if leg == retry.failed { // pick returned it again: no instance is left, or no slot for decode alone
		return false
	}
	retry.failed = leg
	if leg.Role == upstream.RolePrefill && !ours(retry, leg) {
		return s.afterPrefill(t, leg)
	}
	if !leg.Sent {
		s.exclude(retry, leg)
		switch {
		case leg.Role == upstream.RolePrefill: // the instance was quarantined after it had been picked
			return true
		case retry.pathTied:
			return true
		case !retry.anotherDecode: // decode.go has already offered the hand-over to other decode engines
			return false
		}
	}
	if leg.Role == upstream.RoleDecode && leg.Paused() && !s.decodesElsewhere(retry, leg, t.Model) {
		return false // prefill would compute the prompt again for the same refusal
	}
	switch echo := leg.Kind == upstream.IDEcho; {
	case echo && t.record.Retries() >= maxDials:
		return false
	case echo: // each such failure quarantines an incarnation, so that they end
	case !s.mayRestart(t, leg.Role) || !ours(retry, leg) && !s.budget.take(t.share.Client):
		return false
	default:
		retry.again = append(retry.again, leg.Role)
	}
	t.refresh()
	unanswered := errors.Is(leg.Err, upstream.ErrReuseTimeout)
	if unanswered && retry.sentTicket {
		retry.withoutTicket = record.ReasonNotBidirectional
	}
	if unanswered && len(s.deps.Fleet.Engines(upstream.RolePrefill)) > 1 {
		s.exclude(retry, leg)
	}
	return true
}

// decodesElsewhere reports whether another decode instance than that of a leg may take a turn of the model.
func (s *turns) decodesElsewhere(t *retryState, leg *upstream.LegError, model string) bool {
	return slices.ContainsFunc(s.deps.Fleet.Engines(upstream.RoleDecode), func(e *fleet.Engine) bool {
		return e.Name != leg.Instance && !t.excludes(e) && e.Reachable() && !e.Health.Pauses() && e.MayServe(model)
	})
}

// refresh gives the next attempt's legs a new request id, and forbids them a ticket.
func (t *turn) refresh() {
	t.legID = upstream.NewID()
	t.retry.withoutTicket, t.retry.withoutRelease = record.ReasonRetried, true
	if reason := t.record.Reuse().Reason; !t.retry.sentTicket && reason != "" {
		t.retry.withoutTicket = reason // the failed attempt had no ticket either, for this reason
	}
}

// mayRestart reports whether a leg that was sent and failed may be followed by a new one: once for each role, and only if the client has
// not waited for long.
func (s *turns) mayRestart(t *turn, role upstream.Role) bool {
	return !slices.Contains(t.retry.again, role) && s.patient(&t.record)
}

// patient reports whether the client has waited for less than half of the time limit for the first byte.
func (s *turns) patient(turn *record.Builder) bool {
	return time.Since(turn.Times().Began) < s.cfg.FirstByteTimeout/2
}

// ours reports whether a prefill leg failed because of what was added to the client's request: a ticket, a release, or ids that prefill did
// not compute. The next leg then goes without, whatever the status was, and costs no retry budget. That can't double the load for long:
// three such failures of a ticket stop reuse for the pair, one of a release pauses releases, and one of ids quarantines the instance.
func ours(t *retryState, leg *upstream.LegError) bool {
	switch {
	case leg.Role != upstream.RolePrefill, errors.Is(leg.Err, upstream.ErrPrefillTimeout): // the client's time is used up
		return false
	case leg.Kind == upstream.IDEcho:
		return true
	}
	return (t.sentTicket || t.sentRelease) && (pins.OutcomeOf(leg) != pairs.Inconclusive || errors.Is(leg.Err, upstream.ErrTicketEnded))
}

// unreadable reports whether prefill's answer could not be read. If both legs were sent together, decode can't go on without it, and the
// turn begins anew.
func unreadable(leg *upstream.LegError) bool {
	return leg.Role == upstream.RolePrefill && leg.Kind == upstream.Garbage
}
