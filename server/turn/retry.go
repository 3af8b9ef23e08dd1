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
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/pairs"
)

// failure is what a failed attempt leaves to the next one, besides its error.
type failure struct {
	added  bool               // the prefill leg carried a ticket or a piggybacked release
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
	if leg.Role != upstream.RolePrefill || errors.Is(leg.Err, upstream.ErrPrefillTimeout) { // the client's time is used up
		return false
	}
	return leg.Kind == upstream.IDEcho || f.added && (pins.OutcomeOf(leg) != pairs.Inconclusive || errors.Is(leg.Err, upstream.ErrTicketEnded))
}

// mayTryAgain decides whether another attempt follows one that failed with err before bytes had reached the client, and prepares it:
//
//   - nothing of the leg was sent: another instance;
//   - something may have been sent: once for each leg, with no previous KV, which may be spent, on another instance if there is one, within
//     the retry budget;
//   - prefill failed, but not because of a ticket, a release or ids that were added to its leg: as the operator has chosen. Another prefill
//     instance, any number of times while connections are refused, and once, within the retry budget, if the leg was sent; the same one if
//     there is no other, except after a 500 or its time limit, which another try would repeat, and while it is paused. Or decode alone, which
//     costs no retry budget because it has a limit of its own (package pick), and may also answer a client that has waited for long because
//     prefill has let its time limit pass. Or the error;
//   - another engine has answered 500 in equal words to the same body, now or within the last minute: nothing (everywhere.go);
//   - the client has gone: nothing.
//
// The legs that follow have a new request id. A fresh leg after a 5xx or silence to a ticket or a release, or after a failed id echo, costs
// no retry budget, because the fault was ours; a third id echo that fails ends the turn. vLLM sends decode's first chunk (the role) even
// when it failed to load the KV, and the error as the next event. So the first chunk waits for the second event, whatever becomes of that,
// but for LegConfig.FirstEvent at most; until then such a turn is still retried, without the prefill instance whose KV could not be loaded,
// as long as that has not been restarted, and on another decode instance if there is one. Comments and blank lines reach the client at once,
// because they tell it, and the proxies before it, that the connection lives. So they commit the turn, even before decode's first event
// (package sse). vLLM itself writes none.
func (h *Handler) mayTryAgain(ctx context.Context, t *turn, err error) bool {
	leg, f, next := legOf(err), &t.failed, &t.asked
	if ctx.Err() != nil || leg == nil {
		return false
	}
	engine := h.deps.Fleet.Engine(leg.Role, leg.Instance) // nil if it has left
	prefills, caused, overdue := leg.Role == upstream.RolePrefill, f.caused(leg), errors.Is(leg.Err, upstream.ErrPrefillTimeout)
	own := prefills && !caused
	switch {
	case leg.Status == http.StatusNotFound:
		return h.withoutModel(t, leg.Role, engine)
	case prefills && t.tooLong(leg, engine):
		next.TooLong = true
		return t.restart()
	case leg == next.Failed: // pick returned it again: no instance is left, or no slot for decode alone
		return false
	case own && (next.PrefillError || leg.Sent && h.late(t) && !overdue):
		return false
	case leg.Retryable(), caused:
	case own && (leg.Kind == upstream.Garbage || leg.Kind == upstream.Timeout):
		// Prefill has answered, and decode can't go on: the answer of a leg that was sent together with decode's can't be read, or the KV
		// has not arrived. Or prefill's time is over.
	default:
		return false
	}
	next.Failed = leg
	decodeOnly := own && t.routing.PrefillFailure == PrefillDecodeOnly
	if !leg.Sent {
		t.exclude(engine)
		switch next.NoPrefill = next.NoPrefill || decodeOnly; {
		case prefills, f.tied: // if no prefill instance is left, pick chooses decode alone; one may be quarantined since it was picked
			return true
		case !f.bound: // decode.go has already offered the hand-over to other decode engines
			return false
		}
	}
	elsewhere := h.elsewhere(t, leg.Role, engine)
	switch echo := leg.Kind == upstream.IDEcho; {
	case own:
		lastWord := isInternal(leg) || leg.Paused() || overdue || errors.Is(leg.Err, upstream.ErrNotReady)
		next.PrefillFailed = true
		next.NoPrefill = decodeOnly || !h.mayRestart(t, leg.Role) || !elsewhere && lastWord || !h.Retries.take(t.Account)
		t.tried = append(t.tried, leg.Role)
	case !prefills && leg.Paused() && !elsewhere: // prefill would compute the prompt again for the same refusal
		return false
	case echo && t.retried < pick.MaxDials: // each such failure quarantines an incarnation, so that they end
	case echo, !h.mayRestart(t, leg.Role), !caused && !h.Retries.take(t.Account):
		return false
	default:
		t.tried = append(t.tried, leg.Role)
	}
	if f.unread != nil {
		h.leavePair(ctx, t, f.unread)
	}
	if elsewhere {
		t.exclude(engine)
	}
	if t.restart(); f.reused.Hit && errors.Is(leg.Err, upstream.ErrReuseTimeout) {
		t.without.Why = record.ReasonNotBidirectional
	}
	return true
}

// late reports whether the client has waited for so long that no leg that was sent is followed by another.
func (h *Handler) late(t *turn) bool { return time.Since(t.began) >= h.cfg.begins(t.Stream)/2 }

// mayRestart reports whether a leg that was sent and failed may be followed by a new one: once for each role, and only if the client has
// not waited for long.
func (h *Handler) mayRestart(t *turn, role upstream.Role) bool {
	return !slices.Contains(t.tried, role) && !h.late(t)
}

// restart has another attempt follow, and forbids further attempts a ticket and a release.
func (t *turn) restart() bool {
	t.without = reuse.Choice{Why: record.ReasonRetried}
	if last := &t.failed.reused; !last.Hit && last.Reason != "" { // the failed attempt had no ticket either, for this reason
		t.without = reuse.Choice{Why: last.Reason, Differs: last.Differs}
	}
	return true
}

// tooLong reports whether prefill has refused a prompt that may be longer than it takes. Decode may take more; and if it refuses, too, its
// words are about the answer that the client has asked for.
func (t *turn) tooLong(leg *upstream.LegError, prefill *fleet.Engine) bool {
	if prefill == nil || leg.Status != http.StatusBadRequest && leg.Status != http.StatusRequestEntityTooLarge {
		return false
	}
	length := facts.ContextLength(prefill.Models(), t.Model)
	return length > 0 && 2*t.Length.Whole.Tokens(1) >= length // a token has a byte, and templates add some
}

// withoutModel decides what follows a leg whose engine does not serve the model, and can't load it: decode alone, if prefill's list did not show
// the model, and decode's does.
func (h *Handler) withoutModel(t *turn, role upstream.Role, asked *fleet.Engine) bool {
	models := h.deps.Fleet.Catalogue
	models.Refused(t.Account, role, t.Model)
	serves := func(e *fleet.Engine) bool { return e.MayServe(t.Model) }
	switch {
	case role == upstream.RoleDecode, asked == nil, serves(asked):
		return false
	case t.asked.PrefillError, !slices.ContainsFunc(h.deps.Fleet.Engines(upstream.RoleDecode), serves):
		models.Refused(t.Account, upstream.RoleDecode, t.Model) // which prefill has answered for
		return false
	}
	t.asked.NoPrefill, t.asked.PrefillFailed = true, true
	return t.restart()
}

// exclude keeps further attempts from picking an engine.
func (t *turn) exclude(engine *fleet.Engine) {
	if engine != nil {
		t.asked.Excluded = append(t.asked.Excluded, engine)
	}
}

// elsewhere reports whether another engine of a role may take the turn.
func (h *Handler) elsewhere(t *turn, role upstream.Role, but *fleet.Engine) bool {
	return slices.ContainsFunc(h.deps.Fleet.Engines(role), func(e *fleet.Engine) bool {
		return e != but && (role == upstream.RoleDecode || t.MayPrefill(e.Name)) && !slices.Contains(t.asked.Excluded, e) &&
			!e.Quarantined() && e.Reachable() && !e.Health.Unreached() && !e.Health.Pauses() && e.MayServe(t.Model)
	})
}

// leavePair has the next attempt leave out the prefill engine of a pair whose hand-over decode has failed to load: without another one
// decode serves alone, unless the operator wants errors. A prefill that has been restarted meanwhile is another pair.
func (h *Handler) leavePair(ctx context.Context, t *turn, unread *fleet.Incarnation) {
	prefill := unread.Engine()
	prefill.Refresh(ctx)
	if unread.Ended() || t.asked.PrefillError && !h.elsewhere(t, upstream.RolePrefill, prefill) {
		return
	}
	t.asked.PrefillFailed = true
	t.asked.NoPrefill = t.routing.PrefillFailure == PrefillDecodeOnly
	t.exclude(prefill)
}
