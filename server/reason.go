package server

import (
	"github.com/tidwall/gjson"

	"carryover/convcache"
	"carryover/upstream"
)

// Reason says why a turn reused nothing. The set is closed; ineligible_<why> is
// the only open end, and its words are those of this package, upstream and
// convcache.
type Reason string

// The reasons of a miss.
const (
	ReasonFirstTurn        Reason = "first_turn"
	ReasonNoConversation   Reason = "no_conversation"
	ReasonExpired          Reason = "expired"
	ReasonRewritten        Reason = "history_rewritten"
	ReasonBelowThreshold   Reason = "below_threshold"
	ReasonConsumed         Reason = "consumed"
	ReasonNothingStored    Reason = "nothing_stored"
	ReasonInstanceGone     Reason = "instance_gone"
	ReasonStoreUnavailable Reason = "store_unavailable"
	ReasonStoreFailedOver  Reason = "store_failed_over"
	ReasonUnproven         Reason = "ineligible_unproven"
	ReasonNotBidirectional Reason = "prefill_not_bidirectional"
	ReasonPairOnTrial      Reason = "pair_on_trial"
	ReasonRetried          Reason = "retried_without_ticket"
	ReasonNoParams         Reason = "engine_sends_no_params"
	ReasonNotAppendOnly    Reason = "template_not_append_only"
	ReasonBypass           Reason = "bypass"
	ReasonTokenizeFailed   Reason = "tokenize_failed"
	ReasonNotComparable    Reason = "ineligible_not_comparable"
)

// Why nothing is proven, in ReasonUnproven.
const (
	whyStart  = "start"  // a start of an engine is not known
	whyProbe  = "probe"  // an engine has not shown that it uses the ids that it is sent
	whyIDs    = "ids"    // an engine does not tell ids
	whyBarred = "barred" // prefill was caught computing other ids
	whyShape  = "shape"  // /tokenize has not shown, or does not, what prefill renders of such requests
)

// lacks is ReasonUnproven with the cause.
func lacks(why string) Reason { return ReasonUnproven + Reason(";why="+why) }

// missReason translates a store's outcome.
func (s *Server) missReason(t *turn, p *pair, outcome convcache.Outcome) Reason {
	switch outcome {
	case convcache.Empty:
		if s.silent.is(p.decode.Name) {
			return ReasonNoParams
		}
		if t.opens() {
			return ReasonFirstTurn
		}
		return ReasonNothingStored
	case convcache.Expired:
		return ReasonExpired
	case convcache.Consumed:
		return ReasonConsumed
	case convcache.Fenced:
		return ReasonStoreFailedOver
	case convcache.Taken:
		// What was taken is not what was looked at: it is given up.
		return ReasonRewritten
	}
	return ReasonStoreUnavailable
}

// opens reports whether the request looks like the first of its conversation. A
// text prompt does not tell.
func (t *turn) opens() bool {
	return t.api == upstream.Text || !gjson.GetBytes(t.req.Messages(), `#(role=="assistant")`).Exists()
}
