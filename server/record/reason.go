package record

// Reason says why a turn reused nothing. The set is closed except for ineligible_<why>, whose words come from this package, proof, upstream
// and convcache.
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

	// Reasons for a conversation that was handed back, or is being handed back. In this order: its ticket is on its way to prefill; the
	// instance's prefix cache no longer has any of it; the turn went to another instance, which has none of it; prefill does not report how
	// many tokens were cached.
	ReasonHandingBack         = "handing_back"
	ReasonHandedBackEvicted   = "handed_back_evicted"
	ReasonHandedBackElsewhere = "handed_back_elsewhere"
	ReasonHandBackUnreported  = "hand_back_unreported"

	// Why a hit saved nothing: prefill had the prompt in its own cache; the ticket brought so few tokens more that prefill computed them; it
	// brought none, because the history differs from there on.
	ReasonHadIt     = "prefill_had_it"
	ReasonFewTokens = "too_few_tokens"
	ReasonCutShort  = "rewritten_early"

	// The reasons that a proof gives are in package proof: tokenize_failed, and ineligible_unproven with the cause.
)

// The outcomes of a turn's reuse.
const (
	Hit    = "hit"    // a ticket was used, or what was handed back was found
	Prefix = "prefix" // no hit, but prefill's own caches had at least one block of the prompt; the reason says why it is no hit
	Miss   = "miss"   // none of these; the reason says why
	Off    = "off"    // the client wanted none
)

// The ways that a turn may go.
const (
	WayPrefillDecode = "prefill_decode"
	WayDecodeOnly    = "decode_only"
)

// Why decode serves a turn alone. Besides these there are WhyConnector and the reasons of package body for requests that share one
// hand-over. The set is closed.
const (
	WhyLimits      = "limits"              // the prompt, or the answer that it asks for, is longer than an engine takes
	WhyThreshold   = "disagg_threshold"    // so little is left to compute that a hand-over does not pay
	WhyNoPrefiller = "no_prefiller"        // requests name their prefill instance, and this one names none
	WhyUnavailable = "prefill_unavailable" // no prefill instance can be reached
	WhyQuarantined = "prefill_quarantined" // the prefill instances that can be reached are quarantined
	WhyFailed      = "prefill_failed"      // prefill failed, has not the model, or gave nothing that decode could read

	WhyConnector = "connector" // the connector can't move the request, or leaves no KV that a next turn could use
)

// What may be wrong with a conversation's id.
const (
	NameUnseen = "unseen"
	NameShared = "shared"
)
