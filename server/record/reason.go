package record

// Reason says why a turn reused nothing. The set is closed except for ineligible_<why>, whose words come from this package, proof, upstream
// and convcache.
type Reason string

// The reasons of a miss.
const (
	ReasonFirstTurn          Reason = "first_turn"
	ReasonNoConversation     Reason = "no_conversation"
	ReasonExpired            Reason = "expired"
	ReasonRewritten          Reason = "history_rewritten"
	ReasonBelowThreshold     Reason = "below_threshold"
	ReasonConsumed           Reason = "consumed"
	ReasonNothingStored      Reason = "nothing_stored"
	ReasonReleasedOverBudget Reason = "released_over_budget"
	ReasonInstanceGone       Reason = "instance_gone"
	ReasonQuarantined        Reason = "quarantined"
	ReasonStoreUnavailable   Reason = "store_unavailable"
	ReasonStoreFailedOver    Reason = "store_failed_over"
	ReasonNotBidirectional   Reason = "prefill_not_bidirectional"
	ReasonPairOnTrial        Reason = "pair_on_trial"
	ReasonRetried            Reason = "retried_without_ticket"
	ReasonNoParams           Reason = "engine_sends_no_params"
	ReasonBypass             Reason = "bypass"

	// Reasons for a conversation that was handed back, or is being handed back. In this order: its ticket is on its way to prefill; the
	// instance's prefix cache no longer has any of it; the turn went to another instance, which has none of it; prefill does not report how
	// many tokens were cached.
	ReasonHandingBack         Reason = "handing_back"
	ReasonHandedBackEvicted   Reason = "handed_back_evicted"
	ReasonHandedBackElsewhere Reason = "handed_back_elsewhere"
	ReasonHandBackUnreported  Reason = "hand_back_unreported"

	// Why a hit saved nothing: prefill had the prompt in its own cache; the ticket brought so few tokens more that prefill computed them; it
	// brought none, because the history differs from there on.
	ReasonHadIt     Reason = "prefill_had_it"
	ReasonFewTokens Reason = "too_few_tokens"
	ReasonCutShort  Reason = "rewritten_early"

	// The reasons that a proof gives are in package proof: tokenize_failed, and ineligible_unproven with the cause.
)

// Rewritten reports whether a turn reuses nothing because its history differs from a ticket's, or agrees with it for too few tokens.
func (r Reason) Rewritten() bool { return r == ReasonRewritten || r == ReasonBelowThreshold }
