package record

import (
	"slices"
	"strings"

	"carryover/upstream/body"
)

// Term is a word of a closed set in answers, logs and metrics.
type Term struct {
	Name  string
	Means string // what happened; for a reason, a sentence for people
	Do    string // what an operator or a client can do, as a sentence; "" if nothing is wrong, or Means says it
}

// Sentences returns what happened and what can be done.
func (t Term) Sentences() string { return strings.TrimSuffix(t.Means+" "+t.Do, " ") }

// hintsOf returns the sentences of terms by name, and by ineligible_<name>, as IneligibleReasons occur. Of equal names the last one counts.
func hintsOf(tables ...[]Term) map[string]string {
	all := map[string]string{}
	for _, term := range slices.Concat(tables...) {
		all[term.Name] = term.Sentences()
		all["ineligible_"+term.Name] = all[term.Name]
	}
	return all
}

// An answer may be ruled out for a reason of a miss, and a history for what its last answer was.
//
//nolint:gochecknoglobals // immutable tables
var (
	reasonHints = hintsOf(StoredResults(), IneligibleReasons(), MissReasons(), EmptyHits())
	storedHints = hintsOf(IneligibleReasons(), MissReasons(), StoredResults())
	aloneHints  = hintsOf(AloneReasons())
)

// Hint returns in plain words why a turn reused or saved nothing, and what can be done. It returns "" for other turns, and for a client that wanted
// no reuse.
func (r *Turn) Hint() string {
	_, reason := r.Reuse.Outcome()
	if alone := aloneHints[r.Path.Reason]; reason == ReasonBypass && alone != "" {
		return alone
	}
	return reasonHints[reason]
}

// StoredHint returns in plain words why the answer left no ticket, "" if it left one or there was no answer.
func (r *Turn) StoredHint() string {
	if r.Stored == "yes" {
		return ""
	}
	return storedHints[r.Stored]
}

// MissReasons returns every reason of a miss, except for ineligible_<why>, which IneligibleReasons has.
func MissReasons() []Term {
	return []Term{
		{ReasonFirstTurn, "The request opens its conversation, so there is nothing to reuse yet.", ""},
		{ReasonNoConversation, "The request names no conversation, so its earlier turns can't be found.", "Have the client send an id, see docs/clients.md."},
		{ReasonNothingStored, "Nothing is kept of this conversation.", "Look at `stored` in the log line of the turn before: it says why that turn kept nothing."},
		{ReasonRewritten, "The request does not begin with the tokens that were kept: the client has changed its history.", "Look at `differs`: it names the first place that changed."},
		{ReasonExpired, "The conversation went on after its KV had expired.", "Raise `--ttl` and the engines' `decoder_kv_blocks_ttl`. `carryover_hand_backs_total` shows whether idle KV is handed back before it expires (`--hand-back`)."},
		{ReasonConsumed, "Another request of this conversation used the ticket at the same time.", ""},
		{ReasonBelowThreshold, "So few tokens could be reused that computing them is cheaper.", "The limits are 64 tokens and half of the ticket."},
		{ReasonStoreUnavailable, "The ticket store did not answer in time.", "Check Redis and the network to it."},
		{ReasonStoreFailedOver, "Redis has failed over since the ticket was stored, so it is not safe to use.", "Nothing to do: each conversation misses once."},
		{ReasonInstanceGone, "The decode instance that held the KV was removed, drained or restarted, has slept, or does not answer.", "If that was not planned, check why."},
		{ReasonQuarantined, "A prefill instance computed other tokens than it was sent and is quarantined: the turn needed that instance, or the KV may come from it.", "Restart that instance."},
		{ReasonReleasedOverBudget, "The KV was released because tickets held more than their share of decode's KV cache, or the cache was full.", "Raise `--pinned-share` or add decode instances, or shorten `--hand-back-after`."},
		{ReasonHandingBack, "The turn came while its KV was on the way to prefill's prefix cache.", "If this happens often, lengthen `--hand-back-after`."},
		{ReasonHandedBackEvicted, "The KV was handed back to prefill, whose prefix cache has dropped it since.", "Give prefill a larger KV cache."},
		{ReasonHandedBackElsewhere, "The KV was handed back to another prefill instance than the one that served the turn.", "Check why the other instance did not get the turn: it may be down, full or avoided."},
		{ReasonHandBackUnreported, "The KV was handed back, but prefill does not report how many tokens it takes from its cache.", "Use vLLM 0.31 or newer on prefill."},
		{ReasonNotBidirectional, "Prefill did not answer a request with a ticket, so this pair of instances reuses nothing for a while.", "Run `carryover doctor`. The pair is tried again after 1 to 30 minutes."},
		{ReasonPairOnTrial, "Another turn is testing whether this pair of instances can reuse KV.", "Nothing to do: the test takes one turn."},
		{ReasonNoParams, "Decode's answers carry no kv_transfer_params, so nothing can be reused.", "Install the plug-in of scripts/vllm on the engines, or run vLLM 0.33."},
		{ReasonRetried, "The first attempt of the turn failed, and the second ran without the ticket.", "Look at `trying again` in the log."},
		{ReasonBypass, "Nothing was looked up: the request was refused, or decode served it alone.", "Look at `code` and `X-KV-Path`."},
		{"tokenize_failed", "Prefill's /tokenize did not return the prompt's token ids in time, so nothing could be compared.", "Check `/tokenize` of the prefill instances; a warning in the log says more."},
		{"ineligible_unproven;why=incarnation", "An engine does not report when it was started (process_start_time_seconds), or was not asked in time.", "Run one API server per engine, and let Carryover read its /metrics."},
		{"ineligible_unproven;why=probe", "An engine has not shown that it computes the token ids that it is sent.", "Use vLLM 0.28 or newer, and give Carryover an API key that the engine takes."},
		{"ineligible_unproven;why=ids", "An engine does not report the token ids that it used.", "Run `carryover doctor`: it names the engine and what to change."},
		{"ineligible_unproven;why=render", "Only a render endpoint returns the token ids of prompts of /v1/messages and /v1/responses, and there is none, or it did not answer.", "Set `--enable-scale-out` on prefill, or `--render`, and check it."},
		{"ineligible_unproven;why=shape", "This shape of request is new since the prefill instance was started, or /tokenize refuses it or renders it differently.", "Nothing to do if it is new: the next such request is proven. Otherwise a warning in the log says more."},
	}
}

// EmptyHits returns the reasons why hits saved nothing.
func EmptyHits() []Term {
	return []Term{
		{ReasonHadIt, "Prefill had computed this prompt before and found it in its own cache, so the hit saved nothing.", ""},
		{ReasonFewTokens, "The ticket had so few tokens more than prefill's own cache that prefill computed them, so the hit saved nothing.", "Nothing to do: this happens after answers of fewer than 64 tokens (`kv_recompute_threshold`)."},
		{ReasonCutShort, "The history differs from the ticket so early that prefill's own cache had all equal tokens, so the hit saved nothing.", "Look at `differs`: it names the first place that changed. See docs/clients.md for what templates and clients change."},
	}
}

// IneligibleReasons returns the words of ineligible_<why>: a request or an answer that can take no part, whatever the store has.
func IneligibleReasons() []Term {
	return []Term{
		{body.WhyN, "The request asks for several answers (n, several prompts, a beam search), or has embeddings as a prompt.", ""},
		{body.WhyEcho, "The answer has to repeat its prompt (echo).", ""},
		{body.WhyPromptLogprobs, "The request asks for log probabilities of its prompt, so all of the prompt has to be computed.", ""},
		{body.WhyTruncate, "The engine cuts the prompt of this request, so its tokens are not known.", ""},
		{body.WhyContent, "The request has images, audio, video, files or embeddings, which token ids do not describe, or messages with a member that is not known to be text.", ""},
		{body.WhyUnknownMember, "The request has messages or a member that Carryover does not know or can't judge, and that may change the prompt.", ""},
		{body.WhyTooComplex, "The request is nested too deeply, or has too many members.", ""},
		{WhyConnector, "The KV connector leaves nothing that a next turn could use.", "See docs/connectors.md for connectors that do."},
	}
}

// AloneReasons returns why decode serves a turn alone.
func AloneReasons() []Term {
	return []Term{
		{WhyThreshold, "Decode served the turn alone: fewer tokens were left to compute than `--disagg-threshold`. The conversation's ticket stays where it is.", ""},
		{WhyLimits, "Decode served the turn alone: prefill takes no prompt of this length, or decode will refuse the length or `max_tokens`, and prefill would compute the prompt in vain.", "Give both roles the same `--max-model-len`."},
		{body.WhyN, "Decode served the turn alone: a request for several answers (n, several prompts, a beam search) or of embeddings can't be handed over.", ""},
		{body.WhyTruncate, "Decode served the turn alone: prefill and decode would cut the prompt differently.", ""},
		{WhyUnavailable, "Decode served the turn alone: no prefill instance could be reached.", "Check the prefill instances."},
		{WhyQuarantined, "Decode served the turn alone: the prefill instances that could be reached are under quarantine.", "Restart them."},
		{WhyFailed, "Decode served the turn alone: prefill failed, lacks the model, or gave nothing that decode could read.", "Look at `blame` and `kind` in the log line."},
		{WhyNoPrefiller, "Decode served the turn alone: requests have to name their prefill instance (`--prefiller-allow`), and this one named none.", ""},
		{WhyConnector, "Decode served the turn alone: the KV connector can't move this request or turns of this API, or prefill had nothing for decode.", ""},
		{"prompt_too_long", "Decode served the turn alone: LMCache would not announce the KV of a prompt of this length.", "Raise `--lmcache-max-prompt-tokens` if LMCache's buffer is large enough."},
		{"prompt_too_short", "Decode served the turn alone: the prompt is shorter than one chunk of LMCache.", ""},
		{"context_unknown", "Decode served the turn alone: the model's context length is not known, and the chat may use all of it (LMCache).", ""},
		{body.WhyPromptLogprobs, "Decode served the turn alone: a request for log probabilities of its prompt can't be split between two engines.", ""},
		{"no_receiver", "Decode served the turn alone: it is not known where the decode instance receives KV (LMCache).", "Set `--decoder-registry`."},
	}
}

// StoredResults returns what became of a turn's ticket: `stored` in its log line, `result` of carryover_tickets_total. It leaves out reasons of a
// miss that hold for the answer, too.
func StoredResults() []Term {
	return []Term{
		{"yes", "A ticket was kept.", ""},
		{"released", "Answers like this one are not continued, so its blocks are released at once.", "If they are continued, give `--hand-back-after` a duration."},
		{"hand_back", "The request names no conversation; the KV of its answer is handed back to prefill.", ""},
		{"incomplete", "The answer did not reach its end, so nothing was kept.", ""},
		{"uncounted", "The answer came without the usage that counts its tokens, so nothing was kept.", ""},
		{"no_handover", "Decode served the turn alone, so nothing was kept.", "`X-KV-Path` says why."},
		{"final", "The client said that no turn follows, so nothing was kept.", ""},
		{"unavailable", "The ticket store did not answer in time.", "Check Redis and the network to it."},
		{"not_stored", "No time was left to ask the ticket store.", ""},
		{"refused", "The ticket is larger than the whole store may be.", "Raise `--store-max-bytes`."},
		{"expired", "The ticket's time was over before it could be stored.", ""},
		{"duplicate", "Another answer named the same KV blocks, so the ticket was dropped.", "Report this: an engine should not do it."},
		{"ineligible_bad_params", "Decode's kv_transfer_params can't be read, or name more or fewer blocks than the tokens need.", "Check that both engines run the same vLLM version."},
		{"ineligible_block_groups", "The model has several groups of KV blocks. vLLM can take a failed load of them for a success.", ""},
		{"ineligible_token_count", "Decode's answer has another number of tokens than its usage or its params say.", ""},
		{"ineligible_response_id", "The answer does not carry the id of the request that was sent.", ""},
		{"ineligible_choices", "The answer has several choices.", ""},
		{"ineligible_prompt_ids", "The answer does not tell in one piece which ids its prompt had.", ""},
		{"ineligible_unparsable", "An event of the answer can't be read, or is too large.", ""},
		{"ineligible_finish", "The answer's finish_reason is not stop, length or tool_calls.", ""},
		{"ineligible_stop_string", "A stop string ended the answer, so the KV holds tokens that the text lacks.", ""},
	}
}
