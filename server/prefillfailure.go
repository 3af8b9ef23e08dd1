package server

import (
	"net/http"
	"slices"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// afterPrefill decides, as the operator has chosen, what follows a prefill leg that failed for a reason of its own, not because of a
// ticket, a release or ids that were added to it:
//
//   - another prefill instance: any number of times while connections are refused, and once, within the retry budget, if the leg was sent.
//     The same instance is asked again if there is no other, except after a 500, which another try would repeat, and while it is paused;
//   - decode alone at once, which costs no retry budget because it has a limit of its own (maxDecodeOnly);
//   - the error.
//
// The decode leg that follows has a new request id.
func (r *retries) afterPrefill(t *retryState, of *retrying, leg *upstream.LegError) decision {
	switch {
	case of.afterPrefill == PrefillError:
		return giveUp
	case !leg.Sent:
		t.picks.NoPrefill = of.afterPrefill == PrefillDecodeOnly
		r.exclude(t, leg)
		return moveOn // if no prefill instance is left, pick chooses decode alone
	case time.Since(of.began) >= r.patience:
		return giveUp
	}
	t.picks.PrefillFailed = true
	t.picks.NoPrefill = of.afterPrefill == PrefillDecodeOnly || slices.Contains(t.again, upstream.RolePrefill) || !r.retriesPrefill(t, of, leg)
	t.again = append(t.again, upstream.RolePrefill)
	t.refresh(of.missed)
	return restart
}

// retriesPrefill reports whether a prefill instance is asked once more. If there is another instance, it excludes the one that failed.
func (r *retries) retriesPrefill(t *retryState, of *retrying, leg *upstream.LegError) bool {
	another := slices.ContainsFunc(r.fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool {
		return e.Name != leg.Instance && (of.prefiller == "" || e.Name == of.prefiller) && !t.picks.Excludes(e) && !e.Quarantined() && e.Reachable()
	})
	lastWord := leg.Kind == upstream.Status && leg.Status == http.StatusInternalServerError || leg.Paused()
	if !another && lastWord || !r.budget.take(of.client) {
		return false
	}
	if another {
		r.exclude(t, leg)
	}
	return true
}
