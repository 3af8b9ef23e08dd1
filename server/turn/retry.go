package turn

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"carryover/server/pick"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// retryPolicy decides what may be tried again.
type retryPolicy struct {
	fleet  *fleet.Fleet
	budget *RetryBudget
}

// retryContext is what these decisions need to know of a turn.
type retryContext struct {
	account      string // whose retry budget is used
	model        string
	prefiller    string         // the only prefill instance that the request allows, "" for any
	afterPrefill PrefillFailure // what the operator wants after a failure of prefill
	retries      int
	most         int           // tokens that the prompt can't exceed
	missed       record.Reason // why the failed attempt reused nothing, "" if it reused a ticket
}

// decision says what follows a failed attempt.
type decision int

const (
	giveUp  decision = iota
	moveOn           // nothing of the leg was sent: another instance gets the same
	restart          // something may have been sent: a new request id, and no previous KV, which may be spent
)

// decide says what follows an attempt that failed before bytes had reached the client, and prepares it:
//
//   - nothing of the leg was sent: another instance;
//   - something may have been sent: at most once per leg, with a new request id
//     and no previous KV, which may be spent, on another instance if there is one;
//   - prefill failed, but not because of what was added to its leg: as the operator has chosen (afterPrefill);
//   - the client has gone: nothing.
func (r *retryPolicy) decide(ctx context.Context, t *retryState, of *retryContext, err error) decision {
	var leg *upstream.LegError
	if ctx.Err() != nil || !errors.As(err, &leg) {
		return giveUp
	}
	if leg.Kind == upstream.Status && leg.Status == http.StatusNotFound {
		return r.withoutModel(t, of, leg)
	}
	// Prefill has answered, and decode can't go on: the answer of a leg that was sent together with decode's can't be read, or the KV has
	// not arrived.
	useless := leg.Role == upstream.RolePrefill && (leg.Kind == upstream.Garbage || errors.Is(leg.Err, upstream.ErrNotReady))
	if r.tooLong(leg, of) {
		t.earlier.TooLong = true
		t.refresh(of.missed)
		return restart
	}
	if !leg.Retryable() && !t.last.caused(leg) && !useless && !errors.Is(leg.Err, upstream.ErrPrefillTimeout) {
		return giveUp
	}
	if leg == t.earlier.Failed { // pick returned it again: no instance is left, or no slot for decode alone
		return giveUp
	}
	t.earlier.Failed = leg
	if leg.Role == upstream.RolePrefill && !t.last.caused(leg) {
		return r.afterPrefill(t, of, leg)
	}
	if !leg.Sent {
		r.exclude(t, leg)
		switch {
		case leg.Role == upstream.RolePrefill: // the instance was quarantined after it had been picked
			return moveOn
		case t.last.pathTied:
			return moveOn
		case !t.last.anotherDecode: // decode.go has already offered the hand-over to other decode engines
			return giveUp
		}
	}
	elsewhere := r.elsewhere(t, of, leg.Role, leg.Instance)
	if leg.Role == upstream.RoleDecode && leg.Paused() && !elsewhere {
		return giveUp // prefill would compute the prompt again for the same refusal
	}
	switch echo := leg.Kind == upstream.IDEcho; {
	case echo && of.retries >= pick.MaxDials:
		return giveUp
	case echo: // each such failure quarantines an incarnation, so that they end
	case !t.mayRestart(leg.Role) || !t.last.caused(leg) && !r.budget.take(of.account):
		return giveUp
	default:
		t.again = append(t.again, leg.Role)
	}
	if t.last.unread != nil {
		r.leavePair(ctx, t, of)
	}
	t.refresh(of.missed)
	if t.last.ticket && errors.Is(leg.Err, upstream.ErrReuseTimeout) {
		t.withoutTicket = record.ReasonNotBidirectional
	}
	if elsewhere {
		r.exclude(t, leg)
	}
	return restart
}

// tooLong reports whether prefill has refused a prompt that may be longer than it takes. Decode may take more; and if it refuses, too, its
// words are about the answer that the client has asked for.
func (r *retryPolicy) tooLong(leg *upstream.LegError, of *retryContext) bool {
	if leg.Role != upstream.RolePrefill || leg.Kind != upstream.Status || leg.Status != http.StatusBadRequest && leg.Status != http.StatusRequestEntityTooLarge {
		return false
	}
	prefill := r.fleet.Engine(leg.Role, leg.Instance)
	if prefill == nil {
		return false
	}
	length := facts.ContextLength(prefill.Models(), of.model)
	return length > 0 && of.most >= length
}

// withoutModel decides what follows a leg whose engine does not serve the model, and can't load it: decode alone, if prefill's list did not show
// the model, and decode's does.
func (r *retryPolicy) withoutModel(t *retryState, of *retryContext, leg *upstream.LegError) decision {
	r.fleet.Catalogue.Refused(of.account, leg.Role, of.model)
	serves := func(e *fleet.Engine) bool { return e.MayServe(of.model) }
	switch asked := r.fleet.Engine(leg.Role, leg.Instance); {
	case leg.Role == upstream.RoleDecode, asked == nil, serves(asked):
		return giveUp
	case of.afterPrefill == PrefillError, !slices.ContainsFunc(r.fleet.Engines(upstream.RoleDecode), serves):
		r.fleet.Catalogue.Refused(of.account, upstream.RoleDecode, of.model) // which prefill has answered for
		return giveUp
	}
	t.earlier.NoPrefill, t.earlier.PrefillFailed = true, true
	t.refresh(of.missed)
	return restart
}

// exclude keeps further attempts from picking the engine of a leg.
func (r *retryPolicy) exclude(t *retryState, leg *upstream.LegError) {
	if e := r.fleet.Engine(leg.Role, leg.Instance); e != nil {
		t.earlier.Excluded = append(t.earlier.Excluded, e)
	}
}

// elsewhere reports whether another instance of a role than the named one may take the turn.
func (r *retryPolicy) elsewhere(t *retryState, of *retryContext, role upstream.Role, but string) bool {
	return slices.ContainsFunc(r.fleet.Engines(role), func(e *fleet.Engine) bool {
		return e.Name != but && (role == upstream.RoleDecode || of.prefiller == "" || e.Name == of.prefiller) && !t.earlier.Excludes(e) &&
			!e.Quarantined() && e.Reachable() && !e.Health.Unreached() && !e.Health.Pauses() && e.MayServe(of.model)
	})
}

// afterPrefill decides, as the operator has chosen, what follows a prefill leg that failed for a reason of its own, not because of a
// ticket, a release or ids that were added to it:
//
//   - another prefill instance: any number of times while connections are refused, and once, within the retry budget, if the leg was sent.
//     The same instance is asked again if there is no other, except after a 500 or its time limit, which another try would repeat, and while
//     it is paused;
//   - decode alone at once, which costs no retry budget because it has a limit of its own (package pick). It may also answer a client that has
//     waited for long, because prefill has let its time limit pass;
//   - the error.
//
// The decode leg that follows has a new request id.
func (r *retryPolicy) afterPrefill(t *retryState, of *retryContext, leg *upstream.LegError) decision {
	late, overdue := time.Until(t.until) <= 0, errors.Is(leg.Err, upstream.ErrPrefillTimeout)
	switch {
	case of.afterPrefill == PrefillError:
		return giveUp
	case !leg.Sent:
		t.earlier.NoPrefill = of.afterPrefill == PrefillDecodeOnly
		r.exclude(t, leg)
		return moveOn // if no prefill instance is left, pick chooses decode alone
	case late && !overdue:
		return giveUp
	}
	t.earlier.PrefillFailed = true
	t.earlier.NoPrefill = of.afterPrefill == PrefillDecodeOnly || late || slices.Contains(t.again, upstream.RolePrefill) || !r.retriesPrefill(t, of, leg)
	t.again = append(t.again, upstream.RolePrefill)
	t.refresh(of.missed)
	return restart
}

// leavePair has the next attempt leave out the prefill engine of a pair whose hand-over decode has failed to load: without another one
// decode serves alone, unless the operator wants errors. A prefill that has been restarted meanwhile is another pair.
func (r *retryPolicy) leavePair(ctx context.Context, t *retryState, of *retryContext) {
	prefill := t.last.unread.Engine()
	prefill.Refresh(ctx)
	if t.last.unread.Ended() {
		return
	}
	if of.afterPrefill == PrefillError && !r.elsewhere(t, of, upstream.RolePrefill, prefill.Name) {
		return
	}
	t.earlier.PrefillFailed = true
	t.earlier.NoPrefill = of.afterPrefill == PrefillDecodeOnly
	t.earlier.Excluded = append(t.earlier.Excluded, prefill)
}

// retriesPrefill reports whether a prefill instance is asked once more. If there is another instance, it excludes the one that failed.
func (r *retryPolicy) retriesPrefill(t *retryState, of *retryContext, leg *upstream.LegError) bool {
	another := r.elsewhere(t, of, leg.Role, leg.Instance)
	lastWord := leg.Kind == upstream.Status && leg.Status == http.StatusInternalServerError || leg.Paused() || errors.Is(leg.Err, upstream.ErrNotReady) ||
		errors.Is(leg.Err, upstream.ErrPrefillTimeout)
	if !another && lastWord || !r.budget.take(of.account) {
		return false
	}
	if another {
		r.exclude(t, leg)
	}
	return true
}
