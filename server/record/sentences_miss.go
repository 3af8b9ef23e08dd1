package record

import "carryover/upstream/body"

// MissReasons returns every reason for which a turn reuses nothing, but for ineligible_<why>, whose words IneligibleReasons has.
func MissReasons() []Term { return missReasons }

//nolint:gochecknoglobals // immutable table
var missReasons = []Term{
	{string(ReasonFirstTurn), "The request opens its conversation, so there is nothing to reuse yet.", ""},
	{string(ReasonNoConversation), "The request names no conversation, so its earlier turns can't be found.", "Have the client send an id, see docs/clients.md."},
	{string(ReasonNothingStored), "Nothing is kept of this conversation.", "Look at `stored` in the log line of the turn before: it says why that turn kept nothing."},
	{string(ReasonRewritten), "The request does not begin with the tokens that were kept: the client has changed its history.", "Look at `differs`: it names the first place that changed."},
	{string(ReasonExpired), "The conversation went on after its KV had expired.", "Raise `--ttl` and the engines' `decoder_kv_blocks_ttl`. `carryover_hand_backs_total` says whether what waits is handed back before (`--hand-back`)."},
	{string(ReasonConsumed), "Another request of this conversation used the ticket at the same time.", ""},
	{string(ReasonBelowThreshold), "So few tokens could be reused that computing them is cheaper.", "The limits are 64 tokens and half of the ticket."},
	{string(ReasonStoreUnavailable), "The ticket store did not answer in time.", "Check Redis and the network to it."},
	{string(ReasonStoreFailedOver), "Redis has failed over since the ticket was stored, so it is not safe to use.", "Nothing to do: each conversation misses once."},
	{string(ReasonInstanceGone), "The decode instance that held the KV is gone, was restarted or drained, has slept, or sends nothing.", "Check why, if that was not planned."},
	{string(ReasonQuarantined), "Prefill computed other tokens than it was sent and is under quarantine, or the KV may come from such a prefill.", "Restart that instance."},
	{string(ReasonReleasedOverBudget), "The KV was released because tickets held more than their share of decode's KV cache, or that was full.", "Raise `--pinned-share` or add decode instances, or shorten `--hand-back-after`."},
	{string(ReasonHandingBack), "The turn came while its KV was on the way to prefill's prefix cache.", "If this happens often, lengthen `--hand-back-after`."},
	{string(ReasonHandedBackEvicted), "The KV was handed back to prefill, whose prefix cache has dropped it since.", "Give prefill a larger KV cache."},
	{string(ReasonHandedBackElsewhere), "The KV was handed back to another prefill instance than the one that served the turn.", "Check why the other instance did not get the turn: it may be down, full or avoided."},
	{string(ReasonHandBackUnreported), "The KV was handed back, but prefill does not report what it takes from its cache.", "Use vLLM 0.31 or newer on prefill."},
	{string(ReasonNotBidirectional), "Prefill did not answer when it was given a ticket, so this pair of instances is left alone for a while.", "Run `carryover doctor`. The pair is tried again after 1 to 30 minutes."},
	{string(ReasonPairOnTrial), "Another turn is just trying whether this pair of instances can reuse KV.", "Nothing to do: it takes one turn."},
	{string(ReasonNoParams), "Decode's answers carry no kv_transfer_params, so nothing can be reused.", "Install the plug-in of scripts/vllm on the engines, or run vLLM 0.33."},
	{string(ReasonRetried), "The first attempt of the turn failed, and the second ran without the ticket.", "Look at `trying again` in the log."},
	{string(ReasonBypass), "Nothing was looked up: the request was refused, or decode served it alone.", "Look at `code` and `X-KV-Path`."},
	{"tokenize_failed", "Prefill's /tokenize did not tell the ids of the prompt in time, so nothing could be compared.", "Check `/tokenize` of the prefill instances; a warning in the log says more."},
	{unproven("incarnation"), "An engine does not tell when it was started (process_start_time_seconds), or was not asked in time.", "Run one API server per engine, and let Carryover read its /metrics."},
	{unproven("probe"), "An engine has not shown that it computes the token ids that it is sent.", "Use vLLM 0.28 or newer, and give Carryover an API key that the engine takes."},
	{unproven("ids"), "An engine does not tell the token ids that it used.", "Run `carryover doctor`: it names the engine and what to change."},
	{unproven("render"), "No render endpoint tells the ids of prompts of /v1/messages and /v1/responses, or it did not answer.", "Set `--enable-scale-out` on prefill, or `--render`, and check it."},
	{unproven("shape"), "This shape of request is new to this start of the prefill instance and not among those that it is taught, or /tokenize does not take it or renders it differently.", "Nothing to do if it is new: the next one is proven. Otherwise a warning in the log says more."},
}

// EmptyHits returns the reasons why hits saved nothing.
func EmptyHits() []Term { return emptyHits }

//nolint:gochecknoglobals // immutable table
var emptyHits = []Term{
	{string(ReasonHadIt), "Prefill had computed this prompt before and found it in its own cache, so the hit saved nothing.", ""},
	{string(ReasonFewTokens), "The ticket had so few tokens more than prefill's own cache that prefill computed them, so the hit saved nothing.", "Nothing to do: answers of fewer than 64 tokens are like that (`kv_recompute_threshold`)."},
	{string(ReasonCutShort), "The history differs from the ticket before anything that prefill lacked, so the hit saved nothing.", "Look at `differs`: it names the first place that changed. See docs/clients.md for what templates and clients change."},
}

// unproven is proof.Unproven: the reason for a lack in the proof.
func unproven(why string) string { return "ineligible_unproven;why=" + why }

// IneligibleReasons returns the words of ineligible_<why>: a request, or an answer, that can take no part whatever the store has.
func IneligibleReasons() []Term { return ineligibleReasons }

//nolint:gochecknoglobals // immutable table
var ineligibleReasons = []Term{
	{body.WhyN, "The request asks for several answers (n, several prompts, a beam search), or has embeddings as a prompt.", ""},
	{body.WhyEcho, "The answer has to repeat its prompt (echo).", ""},
	{body.WhyPromptLogprobs, "The request asks for log probabilities of its prompt, so all of the prompt has to be computed.", ""},
	{body.WhyTruncate, "The engine cuts the prompt of this request, so its tokens are not known.", ""},
	{body.WhyContent, "The request has images, audio, video, files or embeddings, which token ids do not describe, or messages with a member that is not known to be text.", ""},
	{body.WhyUnknownMember, "The request has a member that Carryover does not know and that may change the prompt, or messages or a member that it can't judge.", ""},
	{body.WhyTooComplex, "The request is nested too deeply, or has too many members.", ""},
	{WhyConnector, "The KV connector leaves nothing that a next turn could use.", "See docs/connectors.md for connectors that do."},
}
