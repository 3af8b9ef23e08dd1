package turn

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/pairs"
)

// failure is what a failed attempt leaves to the next one, besides its error.
type failure struct {
	ticket bool               // the prefill leg carried a ticket
	added  bool               // it carried a ticket or a piggybacked release
	bound  bool               // the hand-over was bound to its decode engine, so that no other engine has been tried
	tied   bool               // the path was chosen because of the KV that the decode engine held, so that it must be chosen anew
	unread *fleet.Incarnation // of prefill, which has handed over KV that decode has failed to load, nil if it has not
	reused record.Reuse       // what the attempt reused
}

// caused reports whether a prefill leg failed because of what was added to the client's request: a ticket, a release, or ids that prefill
// did not compute. The next leg then goes without, whatever the status was, and costs no retry budget. That can't double the load for
// long: three such failures of a ticket stop reuse for the pair, one of a release pauses releases, and one of ids quarantines the
// instance.
func (f *failure) caused(leg *upstream.LegError) bool {
	switch {
	case leg.Role != upstream.RolePrefill, errors.Is(leg.Err, upstream.ErrPrefillTimeout): // the client's time is used up
		return false
	case leg.Kind == upstream.IDEcho:
		return true
	}
	return f.added && (pins.OutcomeOf(leg) != pairs.Inconclusive || errors.Is(leg.Err, upstream.ErrTicketEnded))
}

// retries decides what a turn may try again, and knows what its attempts so far mean for the next one.
//
//   - Nothing of a leg was sent: another instance.
//   - Something may have been sent: once for each leg, with a new request id and no previous KV, within the retry
//     budget.
//   - Bytes have reached the client: nothing.
//   - Another engine has answered 500 in equal words to the same body, now or within the last minute: nothing.
//
// A fresh leg after a 5xx or silence to a ticket or a release, or after a failed id echo, costs no retry budget, because the fault was
// ours; a third id echo that fails ends the turn. vLLM sends decode's first chunk (the role) even when it failed to load the KV, and the
// error as the next event. So the first chunk waits for the second event, whatever becomes of that, but for LegConfig.FirstEvent at most; until
// then such a turn is still retried, without the prefill instance whose KV could not be loaded, as long as that has not been restarted, and on
// another decode instance if there is one. Comments and blank lines reach the client at once, because they tell it, and the proxies before it,
// that the connection lives. So they commit the turn, even before decode's first event (package sse). vLLM itself writes none.
type retries struct {
	fleet   *fleet.Fleet
	budget  *RetryBudget
	request *request.Request
	policy  PrefillFailure // what the operator wants after a failure of prefill
	until   time.Time      // from when on no leg that was sent is followed by another, because the client has waited for long

	made    int             // how many attempts have failed and were tried again
	earlier pick.Earlier    // what they mean for the next pick
	tried   []upstream.Role // roles whose leg was sent, failed, and was tried again
	without reuse.Choice    // its Why says why further attempts must use no ticket and carry no release, "" if they may
}

// again reports whether another attempt follows one that failed before bytes had reached the client, and prepares it. The next one has a new
// request id:
//
//   - nothing of the leg was sent: another instance;
//   - something may have been sent: at most once per leg, with no previous KV, which may be spent, on another instance if there is one;
//   - prefill failed, but not because of what was added to its leg: as the operator has chosen (afterPrefill);
//   - the client has gone: nothing.
func (r *retries) again(ctx context.Context, f *failure, err error) bool {
	var leg *upstream.LegError
	if ctx.Err() != nil || !errors.As(err, &leg) {
		return false
	}
	prefills, caused, notReady := leg.Role == upstream.RolePrefill, f.caused(leg), errors.Is(leg.Err, upstream.ErrNotReady)
	switch {
	case leg.Kind == upstream.Status && leg.Status == http.StatusNotFound:
		return r.withoutModel(f, leg)
	case r.tooLong(leg):
		r.earlier.TooLong = true
		return r.restart(f)
	case leg.Retryable(), caused, errors.Is(leg.Err, upstream.ErrPrefillTimeout):
	case prefills && (leg.Kind == upstream.Garbage || notReady):
		// Prefill has answered, and decode can't go on: the answer of a leg that was sent together with decode's can't be read, or the KV
		// has not arrived.
	default:
		return false
	}
	if leg == r.earlier.Failed { // pick returned it again: no instance is left, or no slot for decode alone
		return false
	}
	r.earlier.Failed = leg
	if prefills && !caused {
		return r.afterPrefill(f, leg)
	}
	if !leg.Sent {
		r.exclude(leg)
		switch {
		case prefills, f.tied: // the prefill instance was quarantined after it had been picked
			return true
		case !f.bound: // decode.go has already offered the hand-over to other decode engines
			return false
		}
	}
	elsewhere := r.elsewhere(leg.Role, leg.Instance)
	switch echo := leg.Kind == upstream.IDEcho; {
	case !prefills && leg.Paused() && !elsewhere: // prefill would compute the prompt again for the same refusal
		return false
	case echo && r.made < pick.MaxDials: // each such failure quarantines an incarnation, so that they end
	case echo, !r.mayRestart(leg.Role), !caused && !r.budget.take(r.request.Account):
		return false
	default:
		r.tried = append(r.tried, leg.Role)
	}
	if f.unread != nil {
		r.leavePair(ctx, f.unread)
	}
	if elsewhere {
		r.exclude(leg)
	}
	if r.restart(f); f.ticket && errors.Is(leg.Err, upstream.ErrReuseTimeout) {
		r.without.Why = record.ReasonNotBidirectional
	}
	return true
}

// mayRestart reports whether a leg that was sent and failed may be followed by a new one: once for each role, and only if the client has
// not waited for long.
func (r *retries) mayRestart(role upstream.Role) bool {
	return !slices.Contains(r.tried, role) && time.Until(r.until) > 0
}

// restart has another attempt follow, and forbids further attempts a ticket and a release.
func (r *retries) restart(f *failure) bool {
	r.without = reuse.Choice{Why: record.ReasonRetried}
	if !f.ticket && !f.reused.Hit && f.reused.Reason != "" { // the failed attempt had no ticket either, for this reason
		r.without = reuse.Choice{Why: f.reused.Reason, Differs: f.reused.Differs}
	}
	return true
}

// tooLong reports whether prefill has refused a prompt that may be longer than it takes. Decode may take more; and if it refuses, too, its
// words are about the answer that the client has asked for.
func (r *retries) tooLong(leg *upstream.LegError) bool {
	if leg.Role != upstream.RolePrefill || leg.Kind != upstream.Status || leg.Status != http.StatusBadRequest && leg.Status != http.StatusRequestEntityTooLarge {
		return false
	}
	if prefill := r.fleet.Engine(leg.Role, leg.Instance); prefill != nil {
		length := facts.ContextLength(prefill.Models(), r.request.Model)
		return length > 0 && 2*r.request.Length.Whole.Tokens(1) >= length // a token has a byte, and templates add some
	}
	return false
}

// withoutModel decides what follows a leg whose engine does not serve the model, and can't load it: decode alone, if prefill's list did not show
// the model, and decode's does.
func (r *retries) withoutModel(f *failure, leg *upstream.LegError) bool {
	account, model := r.request.Account, r.request.Model
	r.fleet.Catalogue.Refused(account, leg.Role, model)
	serves := func(e *fleet.Engine) bool { return e.MayServe(model) }
	switch asked := r.fleet.Engine(leg.Role, leg.Instance); {
	case leg.Role == upstream.RoleDecode, asked == nil, serves(asked):
		return false
	case r.policy == PrefillError, !slices.ContainsFunc(r.fleet.Engines(upstream.RoleDecode), serves):
		r.fleet.Catalogue.Refused(account, upstream.RoleDecode, model) // which prefill has answered for
		return false
	}
	r.earlier.NoPrefill, r.earlier.PrefillFailed = true, true
	return r.restart(f)
}

// exclude keeps further attempts from picking the engine of a leg.
func (r *retries) exclude(leg *upstream.LegError) {
	if e := r.fleet.Engine(leg.Role, leg.Instance); e != nil {
		r.earlier.Excluded = append(r.earlier.Excluded, e)
	}
}

// elsewhere reports whether another instance of a role than the named one may take the turn.
func (r *retries) elsewhere(role upstream.Role, but string) bool {
	return slices.ContainsFunc(r.fleet.Engines(role), func(e *fleet.Engine) bool {
		return e.Name != but && (role == upstream.RoleDecode || r.request.MayPrefill(e.Name)) && !slices.Contains(r.earlier.Excluded, e) &&
			!e.Quarantined() && e.Reachable() && !e.Health.Unreached() && !e.Health.Pauses() && e.MayServe(r.request.Model)
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
func (r *retries) afterPrefill(f *failure, leg *upstream.LegError) bool {
	late, overdue, alone := time.Until(r.until) <= 0, errors.Is(leg.Err, upstream.ErrPrefillTimeout), r.policy == PrefillDecodeOnly
	switch {
	case r.policy == PrefillError, leg.Sent && late && !overdue:
		return false
	case !leg.Sent:
		r.earlier.NoPrefill = alone
		r.exclude(leg)
		return true // if no prefill instance is left, pick chooses decode alone
	}
	another := r.elsewhere(leg.Role, leg.Instance)
	lastWord := leg.Kind == upstream.Status && leg.Status == http.StatusInternalServerError || leg.Paused() || overdue || errors.Is(leg.Err, upstream.ErrNotReady)
	r.earlier.PrefillFailed = true
	r.earlier.NoPrefill = alone || late || slices.Contains(r.tried, upstream.RolePrefill) || !another && lastWord || !r.budget.take(r.request.Account)
	if another && !r.earlier.NoPrefill {
		r.exclude(leg)
	}
	r.tried = append(r.tried, upstream.RolePrefill)
	return r.restart(f)
}

// leavePair has the next attempt leave out the prefill engine of a pair whose hand-over decode has failed to load: without another one
// decode serves alone, unless the operator wants errors. A prefill that has been restarted meanwhile is another pair.
func (r *retries) leavePair(ctx context.Context, unread *fleet.Incarnation) {
	prefill := unread.Engine()
	prefill.Refresh(ctx)
	if unread.Ended() || r.policy == PrefillError && !r.elsewhere(upstream.RolePrefill, prefill.Name) {
		return
	}
	r.earlier.PrefillFailed = true
	r.earlier.NoPrefill = r.policy == PrefillDecodeOnly
	r.earlier.Excluded = append(r.earlier.Excluded, prefill)
}
