package record

// Reason says why a turn reused nothing. The set is closed except for ineligible_<why>, whose words come from this package, proof and upstream.
type Reason = string

// The reasons of a miss.
const (
	ReasonFirstTurn          = "first_turn"
	ReasonNoConversation     = "no_conversation"
	ReasonExpired            = "expired"
	ReasonRewritten          = "history_rewritten"
	ReasonBelowThreshold     = "below_threshold"
	ReasonConsumed           = "consumed"
	ReasonNothingStored      = "nothing_stored"
	ReasonReleasedOverBudget = "released_over_budget"
	ReasonInstanceGone       = "instance_gone"
	ReasonQuarantined        = "quarantined"
	ReasonStoreUnavailable   = "store_unavailable"
	ReasonStoreFailedOver    = "store_failed_over"
	ReasonNotBidirectional   = "prefill_not_bidirectional"
	ReasonPairOnTrial        = "pair_on_trial"
	ReasonRetried            = "retried_without_ticket"
	ReasonNoParams           = "engine_sends_no_params"
	ReasonBypass             = "bypass"

	// Reasons for a conversation that was handed back, or is being handed back.
	ReasonHandingBack         = "handing_back"          // its ticket is on its way to prefill
	ReasonHandedBackEvicted   = "handed_back_evicted"   // prefill's prefix cache no longer has any of it
	ReasonHandedBackElsewhere = "handed_back_elsewhere" // the turn went to another instance, which has none of it
	ReasonHandBackUnreported  = "hand_back_unreported"  // prefill does not report how many tokens were cached

	// Why a hit saved nothing.
	ReasonHadIt     = "prefill_had_it"  // prefill had the prompt in its own cache
	ReasonFewTokens = "too_few_tokens"  // the ticket had so few tokens more that prefill computed them
	ReasonCutShort  = "rewritten_early" // the ticket brought no more tokens: the history differs before that

	// Package proof has two more: tokenize_failed, and ineligible_unproven with the cause.
)

// The outcomes of a turn's reuse.
const (
	Hit    = "hit"    // a ticket was used, or prefill found KV that was handed back
	Prefix = "prefix" // no hit, but prefill's own caches had at least one block of the prompt; the reason says why it is no hit
	Miss   = "miss"   // none of these; the reason says why
	Off    = "off"    // the client wanted no reuse
)

// The paths of a turn.
const (
	WayPrefillDecode = "prefill_decode"
	WayDecodeOnly    = "decode_only"
)

// Why decode serves a turn alone. The set is closed: these, WhyConnector, and the reasons of package body for requests that share one hand-over.
const (
	WhyLimits      = "limits"              // the prompt or the requested answer is longer than an engine takes
	WhyThreshold   = "disagg_threshold"    // a hand-over does not pay for the few tokens that are left to compute
	WhyNoPrefiller = "no_prefiller"        // requests name their prefill instance, and this one names none
	WhyUnavailable = "prefill_unavailable" // no prefill instance can be reached
	WhyQuarantined = "prefill_quarantined" // the prefill instances that can be reached are quarantined
	WhyFailed      = "prefill_failed"      // prefill failed, lacks the model, or gave nothing that decode could read

	WhyConnector = "connector" // the connector can't move the request, or leaves no KV for a next turn
)
