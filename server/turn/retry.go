package turn

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/pairs"
)

// failure is what a failed attempt leaves to the next one, besides its error.
type failure struct {
	added  bool               // the prefill leg carried a ticket or a piggybacked release
	bound  bool               // the hand-over was bound to its decode engine, so no other engine was tried
	tied   bool               // the path was chosen because of the KV that the decode engine held, so it must be chosen anew
	unread *fleet.Incarnation // the prefill whose KV decode failed to load, nil for none
	why    string             // why the attempt reused nothing, "" if it had a ticket
}

// caused reports whether a prefill leg failed because of what was added to the client's request: a ticket, a release, or ids that prefill did not
// compute. The next leg then goes without it, whatever the status was, and costs no retry budget. That can't double the load for long: three such
// failures of a ticket stop reuse for the pair, one of a release pauses releases, and one of ids quarantines the instance.
func (f *failure) caused(leg *upstream.LegError) bool {
	if leg.Role != upstream.RolePrefill || errors.Is(leg.Err, upstream.ErrPrefillTimeout) { // the client's time is used up
		return false
	}
	return leg.Kind == upstream.IDEcho || f.added && (pins.OutcomeOf(leg) != pairs.Inconclusive || errors.Is(leg.Err, upstream.ErrTicketEnded))
}

// mayTryAgain decides whether another attempt follows one that failed with err before bytes had reached the client, and prepares it:
//
//   - The client has gone: none follows.
//   - Another engine has answered 500 in equal words to the same body, now or within the last minute: none follows (everywhere.go).
//   - Nothing of the leg was sent: another instance gets it.
//   - Something may have been sent: another leg follows, once for each role and within the retry budget. It goes to another instance if there is
//     one. It uses no previous KV, because that may be spent.
//   - Prefill failed, but not because of a ticket, a release or ids that were added to its leg: the operator has chosen what follows
//     ([PrefillFailure]).
//
// The operator's choices:
//
//   - Another prefill instance. While connections are refused, any number of times; if the leg was sent, once and within the retry budget. If there
//     is no other, the same one, except while it is paused, and after a 500 or its time limit, which another try would repeat.
//   - Decode alone. This costs no retry budget, because it has a limit of its own (package pick). It may answer even a client that has waited for
//     long because prefill has let its time limit pass.
//   - The error.
//
// Each new leg has a new request id. A 5xx or silence to a ticket or a release is our own fault, and so is a failed id echo: the leg that follows
// costs no retry budget. A third id echo that fails ends the turn.
//
// If decode fails to load the KV, vLLM still sends the first chunk (the role), and then the error as the next event. So the first chunk waits for
// the second event, whether or not that is forwarded, for LegConfig.FirstEvent at most. Until then the turn can be tried again: without the prefill
// instance whose KV could not be loaded, unless it has been restarted, and on another decode instance if there is one.
//
// Comments and blank lines reach the client at once. They tell it, and the proxies before it, that the connection lives. So they commit the turn,
// even before decode's first event (package sse). vLLM itself writes none.
func (h *Handler) mayTryAgain(ctx context.Context, t *turn, err error) bool {
	leg, f, next := upstream.LegOf(err), &t.failed, &t.asked
	if ctx.Err() != nil || leg == nil {
		return false
	}
	engine := h.deps.Fleet.Engine(leg.Role, leg.Instance) // nil if it has left
	prefills, caused, overdue := leg.Role == upstream.RolePrefill, f.caused(leg), errors.Is(leg.Err, upstream.ErrPrefillTimeout)
	own := prefills && !caused
	switch {
	case leg.Status == http.StatusNotFound:
		return h.withoutModel(t, leg.Role, engine)
	case prefills && engine != nil && tooLong(leg.Status, t.Length.Whole.Tokens(1), facts.ContextLength(engine.Models(), t.Model)):
		next.TooLong = true
		return t.restart()
	case leg == next.Failed, // pick returned it again: no instance is left, or no slot for decode alone
		own && (next.PrefillError || leg.Sent && h.late(t) && !overdue):
		return false
	case leg.Retryable(), caused, own && (leg.Kind == upstream.Garbage || leg.Kind == upstream.Timeout):
		// The last is prefill whose time is over. Or prefill has answered and decode can't go on: the KV has not arrived, or the answer to a leg that was sent
		// together with decode's can't be read.
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
	echo := leg.Kind == upstream.IDEcho
	switch {
	case own:
		lastWord := leg.Internal() || leg.Paused() || overdue || errors.Is(leg.Err, upstream.ErrNotReady)
		next.PrefillFailed = true
		next.NoPrefill = decodeOnly || !h.mayRestart(t, leg.Role) || !elsewhere && lastWord || !h.Retries.take(t.Account)
	case !prefills && leg.Paused() && !elsewhere: // prefill would compute the prompt again for the same refusal
		return false
	case echo && t.retried < pick.MaxDials: // each such failure quarantines an incarnation, so these failures end
	case echo, !h.mayRestart(t, leg.Role), !caused && !h.Retries.take(t.Account):
		return false
	}
	if !echo {
		t.tried[leg.Role] = true
	}
	if f.unread != nil {
		h.leavePair(ctx, t, f.unread)
	}
	if elsewhere {
		t.exclude(engine)
	}
	if t.restart(); f.why == "" && errors.Is(leg.Err, upstream.ErrReuseTimeout) {
		t.without = record.ReasonNotBidirectional
	}
	return true
}

// late reports whether the client has waited for too long: no new leg may follow one that was sent.
func (h *Handler) late(t *turn) bool { return time.Since(t.began) >= h.cfg.begins(t.Stream)/2 }

// mayRestart reports whether a new leg may follow one that was sent and failed: once for each role, and only if it is not late.
func (h *Handler) mayRestart(t *turn, role upstream.Role) bool {
	return !t.tried[role] && !h.late(t)
}

// restart makes another attempt follow. From now on, attempts use no ticket.
func (t *turn) restart() bool {
	t.without = cmp.Or(t.failed.why, record.ReasonRetried) // the failed attempt may have had no ticket either
	return true
}

// tooLong reports whether prefill refused a prompt of this many tokens at most because it may exceed its context length, 0 for unknown. Decode may
// take longer ones. If decode refuses the prompt too, its words are about the answer that the client asked for.
func tooLong(status, tokens, length int) bool {
	refused := status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge
	return refused && length > 0 && 2*tokens >= length // templates add some tokens
}

// withoutModel decides what follows if an engine does not serve the model, and can't load it: decode alone, if prefill's list did not show the
// model and decode's does.
func (h *Handler) withoutModel(t *turn, role upstream.Role, asked *fleet.Engine) bool {
	models := h.deps.Fleet.Catalogue
	models.Refused(t.Account, role, t.Model)
	switch {
	case role == upstream.RoleDecode, asked == nil, asked.MayServe(t.Model):
		return false
	case t.asked.PrefillError, !h.deps.Fleet.MayServe(upstream.RoleDecode, t.Model):
		models.Refused(t.Account, upstream.RoleDecode, t.Model) // which prefill has answered for
		return false
	}
	t.asked.NoPrefill, t.asked.PrefillFailed = true, true
	return t.restart()
}

func (t *turn) exclude(engine *fleet.Engine) {
	if engine != nil {
		t.asked.Excluded = append(t.asked.Excluded, engine)
	}
}

// elsewhere reports whether another engine of a role may take the turn.
func (h *Handler) elsewhere(t *turn, role upstream.Role, but *fleet.Engine) bool {
	return slices.ContainsFunc(h.deps.Fleet.Engines(role), func(e *fleet.Engine) bool {
		return e != but && (role == upstream.RoleDecode || t.MayPrefill(e.Name)) && !slices.Contains(t.asked.Excluded, e) && e.Takes(t.Model)
	})
}

// leavePair excludes the prefill engine whose hand-over decode failed to load. If there is no other, decode serves alone, unless the operator wants
// errors. A prefill that has been restarted meanwhile makes another pair, and is not excluded.
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
