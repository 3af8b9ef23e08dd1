package server

import (
	"net/http"
	"slices"

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
func (s *turns) afterPrefill(t *turn, leg *upstream.LegError) bool {
	retry := &t.retry
	switch {
	case t.routing.PrefillFailure == PrefillError:
		return false
	case !leg.Sent:
		retry.noPrefill = t.routing.PrefillFailure == PrefillDecodeOnly
		s.exclude(retry, leg)
		return true // if no prefill instance is left, pick chooses decode alone
	case !s.patient(&t.record):
		return false
	}
	retry.prefillFailed = true
	retry.noPrefill = t.routing.PrefillFailure == PrefillDecodeOnly || slices.Contains(retry.again, upstream.RolePrefill) ||
		!s.retriesPrefill(t, leg)
	retry.again = append(retry.again, upstream.RolePrefill)
	t.refresh()
	return true
}

// retriesPrefill reports whether a prefill instance is asked once more. If there is another instance, it excludes the one that failed.
func (s *turns) retriesPrefill(t *turn, leg *upstream.LegError) bool {
	another := slices.ContainsFunc(s.deps.Fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool {
		return e.Name != leg.Instance && t.mayPrefill(e) && !t.retry.excludes(e) && !e.Quarantined() && e.Reachable()
	})
	lastWord := leg.Kind == upstream.Status && leg.Status == http.StatusInternalServerError || leg.Paused()
	if !another && lastWord || !s.budget.take(t.share.Client) {
		return false
	}
	if another {
		s.exclude(&t.retry, leg)
	}
	return true
}
