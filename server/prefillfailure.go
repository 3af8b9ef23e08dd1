package server

import (
	"net/http"
	"slices"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// afterPrefill decides what follows a prefill leg that failed over nothing that we had put into it, as the operator has chosen:
//
//   - another prefill instance: for as long as connections are refused, and once if the leg was sent, within the retry budget.
//     The same instance is asked again if there is no other, but not after a 500, which is its last word on a request, nor if it is paused;
//   - decode alone at once, which costs no budget: it is bounded by itself (maxDecodeOnly);
//   - the error.
//
// A leg of decode's that follows is a fresh one.
func (s *turns) afterPrefill(t *turn, leg *upstream.LegError) bool {
	retry := &t.retry
	switch {
	case t.routing.PrefillFailure == PrefillError:
		return false
	case !leg.Sent:
		retry.noPrefill = t.routing.PrefillFailure == PrefillDecodeOnly
		s.exclude(retry, leg)
		return true // with no prefill instance left, pick lets decode do it all
	case !s.patient(t):
		return false
	}
	retry.prefillFailed = true
	retry.noPrefill = t.routing.PrefillFailure == PrefillDecodeOnly || slices.Contains(retry.again, upstream.RolePrefill) ||
		!s.retriesPrefill(t, leg)
	retry.again = append(retry.again, upstream.RolePrefill)
	t.refresh()
	return true
}

// retriesPrefill reports whether a prefill instance is asked once more, and excludes the one that failed if there is another.
func (s *turns) retriesPrefill(t *turn, leg *upstream.LegError) bool {
	another := slices.ContainsFunc(s.deps.Fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool {
		return e.Name != leg.Instance && t.mayPrefill(e) && !t.retry.excludes(e) && !e.Quarantined() && e.Reachable()
	})
	lastWord := leg.Kind == upstream.Status && leg.Status == http.StatusInternalServerError || leg.Paused()
	if !another && lastWord || !s.budget.take(t.share.client) {
		return false
	}
	if another {
		s.exclude(&t.retry, leg)
	}
	return true
}
