package server

import (
	"strings"

	"carryover/convcache"
	"carryover/server/answer"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/upstream/body"
)

// Term is a word of a closed set that answers, logs and metrics have.
type Term struct {
	Name  string
	Means string // a clause without capital and full stop: explanations put it behind a colon
	Do    string // what an operator or a client can do; "" where nothing is wrong, or the cause says it
}

// MissReasons returns every reason for which a turn reuses nothing, but for ineligible_<why>, whose words IneligibleReasons has.
func MissReasons() []Term { return missReasons }

//nolint:gochecknoglobals // immutable table
var missReasons = []Term{
	{string(record.ReasonFirstTurn), "the request begins its conversation, and the store has nothing of it", ""},
	{string(record.ReasonNoConversation), "the request names no conversation", "have the client name it"},
	{string(record.ReasonNothingStored), "the store has nothing of the conversation", "`stored` in the line of the turn before says why"},
	{string(record.ReasonRewritten), "the request does not begin with what the kept blocks hold", "`differs` names the place"},
	{string(record.ReasonExpired), "the conversation's tickets have ended", "`--ttl`, with the engines' `decoder_kv_blocks_ttl`; or hand-back"},
	{string(record.ReasonConsumed), "another request has taken the ticket", ""},
	{string(record.ReasonBelowThreshold), "so little could be reused that computing is cheaper (reuse_min_tokens, reuse_min_share)", ""},
	{string(record.ReasonStoreUnavailable), "the ticket store does not answer", "look at Redis"},
	{string(record.ReasonStoreFailedOver), "Redis has failed over since the ticket was put", "one miss per conversation"},
	{string(record.ReasonInstanceGone), "the decode instance that holds the blocks is gone, or was restarted", ""},
	{string(record.ReasonInstanceDrained), "the ticket was released because its decode instance was drained or removed", ""},
	{string(record.ReasonInstanceCleared), "the decode instance has cleared its KV cache", ""},
	{string(record.ReasonQuarantined), "its KV may come from a prefill instance that is under quarantine", "restart that instance"},
	{string(record.ReasonReleasedForOthers), "the ticket was released because requests waited for room in decode's KV cache and none ran", "more decode, or a smaller `--pinned-share`"},
	{string(record.ReasonReleasedOverBudget), "the ticket was released because tickets pinned too much of decode's KV cache", "`--pinned-share`, or a shorter `--hand-back-after`"},
	{string(record.ReasonHandingBack), "the ticket is on its way to prefill's prefix cache", "many of them: a longer `--hand-back-after`"},
	{string(record.ReasonHandedBackEvicted), "prefill's prefix cache, to which the conversation was handed back, has nothing of it any more", "a larger KV cache of prefill"},
	{string(record.ReasonHandedBackElsewhere), "the conversation was handed back to another prefill instance", "why did that instance not get the turn?"},
	{string(record.ReasonHandBackUnreported), "the conversation was handed back, and prefill does not tell what it takes from its cache", "vLLM 0.31 or newer"},
	{string(record.ReasonNotBidirectional), "the pair of instances does not answer tickets, and is left alone for a while", "`carryover doctor`; it is tried again after 1, 2, 4 … 30 minutes"},
	{string(record.ReasonPairOnTrial), "another turn is trying whether the pair of instances answers tickets", ""},
	{string(record.ReasonNoParams), "decode's answers carry no kv_transfer_params", "the plug-in, or `--decode-stream buffered`"},
	{string(record.ReasonRetried), "the first attempt failed, and the second ran without the ticket", "`trying again` in the log"},
	{string(record.ReasonBypass), "decode would serve the turn alone", "`X-KV-Path` says why"},
	{proof.MissTokenizeFailed, "prefill does not say what the prompt's ids are", "`/tokenize` of prefill"},
	{proof.MissNotComparable, "/tokenize can't be given such a request, so that its ids can't be compared", ""},
	{proof.MissNotAppendOnly, "the chat template renders history otherwise than it was generated", "a template that only appends"},
	{proof.Unproven(proof.LacksIncarnation), "an engine does not tell its start time (process_start_time_seconds), or was not asked in time", "one API server per engine"},
	{proof.Unproven(proof.LacksProbe), "an engine has not shown that it uses the ids that it is sent", "vLLM 0.28 or newer, and a key that it takes"},
	{proof.Unproven(proof.LacksIDs), "an engine does not tell token ids", "`carryover doctor`"},
	{proof.Unproven(reuse.LacksQuarantined), "prefill computed other ids than it was sent and is under quarantine, or the KV may come from such a prefill", "restart it"},
	{proof.Unproven(proof.LacksRender), "no render endpoint tells the ids of a prompt of /v1/messages or /v1/responses", "`--enable-scale-out` on prefill, or `--render`"},
	{proof.Unproven(proof.LacksRendered), "the render endpoint did not answer", "look at it"},
	{proof.Unproven(proof.LacksShape), "this shape of request is new to this start of the prefill instance and is not among those that it is taught, or /tokenize renders it otherwise than prefill does", "the next one is proven, or a warning in the log says more"},
}

// IneligibleReasons returns the words of ineligible_<why>: a request, or an answer, that can take no part whatever the store has.
func IneligibleReasons() []Term { return ineligibleReasons }

//nolint:gochecknoglobals // immutable table
var ineligibleReasons = []Term{
	{body.WhyN, "the request wants several answers", ""},
	{body.WhyBatchPrompt, "the request has several prompts, or embeddings", ""},
	{body.WhyBeamSearch, "the request wants a beam search", ""},
	{body.WhyEcho, "the answer repeats its prompt", ""},
	{body.WhyPromptLogprobs, "the request wants log probabilities of its prompt, which have to be computed", ""},
	{body.WhyTruncate, "the request has its prompt cut", ""},
	{body.WhyRemoteMedia, "what an address in the request shows may change", ""},
	{body.WhyContent, "the request has images, audio, video or files, of which ids say nothing", ""},
	{body.WhyMessages, "its messages are none that can be read", ""},
	{body.WhyUnknownMember, "the request has a member that Carryover does not know", ""},
	{body.WhyMemberValue, "a member of the request has a value that Carryover can't judge", ""},
	{body.WhyReasoningEffort, "the request's reasoning effort changes what is rendered", ""},
	{body.WhyTooComplex, "the request is nested too deeply or has too many members", ""},
	{record.WhyAPI, "`--proof history` knows chats and text completions alone, or the connector moves no turns of this API", ""},
	{record.WhyConnector, "the KV connector leaves nothing that a next turn could use", ""},
}

// AloneReasons returns why decode serves a turn alone.
func AloneReasons() []Term { return aloneReasons }

//nolint:gochecknoglobals // immutable table
var aloneReasons = []Term{
	{record.WhyThreshold, "fewer tokens were to be computed than `--disagg-threshold`; the ticket of the conversation stays where it is", ""},
	{body.WhyN, "no hand-over serves a request for several answers", ""},
	{body.WhyBatchPrompt, "nor one of several prompts or of embeddings", ""},
	{body.WhyBeamSearch, "nor a beam search", ""},
	{body.WhyTruncate, "nor a prompt that is cut: both legs would cut it otherwise", ""},
	{record.WhyUnavailable, "no prefill instance could be reached", "look at prefill"},
	{record.WhyQuarantined, "those that could be reached are under quarantine", "restart them"},
	{record.WhyFailed, "prefill failed, or gave nothing that decode could read", "`blame` and `kind` in the log"},
	{record.WhyAPI, "the KV connector moves no turns of `/v1/messages` and `/v1/responses`", ""},
	{record.WhyNoPrefiller, "requests name their prefill instance (`--prefiller-allow`), and this one names none", ""},
	{record.WhyConnector, "the KV connector can't move the request, or prefill had nothing for decode", ""},
	{record.WhyNotAnnounced, "prefill's LMCache has announced no KV for this decode instance of late", "restart the prefill instances if decode was restarted"},
	{"prompt_too_long", "LMCache would not announce the prompt's KV", "`--lmcache-max-prompt-tokens`"},
	{"prompt_too_short", "LMCache has no whole chunk of the prompt", ""},
	{"context_unknown", "LMCache: a chat may use up the context, whose length is not known", ""},
	{body.WhyPromptLogprobs, "LMCache: no two engines can answer a request for log probabilities of its prompt", ""},
	{"no_receiver", "LMCache: nothing says where the decode instance receives KV", "`--decoder-registry`"},
	{"not_registered", "MoRI-IO: an engine of the pair has not announced itself", ""},
	{"transfer_mode", "MoRI-IO: one engine of the pair writes KV where the other reads it", ""},
}

// StoredResults returns what became of a turn's ticket: `stored` in its log line, `result` of carryover_tickets_total. Reasons of a
// miss that hold for its answer, too, are not repeated.
func StoredResults() []Term { return storedResults }

//nolint:gochecknoglobals // immutable table
var storedResults = []Term{
	{"yes", "a ticket was kept", ""},
	{reuse.StoredOutside, "the request names no conversation, and its answer is handed back", ""},
	{"incomplete", "the answer did not come to its end", ""},
	{"uncounted", "the usage that was to count its tokens did not come", ""},
	{"no_handover", "decode served the turn alone", ""},
	{"final", "the request said that no turn follows", ""},
	{"unavailable", "the ticket store did not answer", "look at Redis"},
	{"not_stored", "no time was left to ask the store", ""},
	{"refused", "the ticket alone is larger than `--store-max-bytes`", ""},
	{"expired", "the ticket's time was over before it was put", ""},
	{"ineligible_bad_params", "decode's kv_transfer_params can't be read", ""},
	{"ineligible_block_count", "they name more or fewer blocks than the tokens take", ""},
	{"ineligible_block_groups", "the model has several groups of KV blocks", "`--reuse-hybrid`"},
	{"ineligible_response_id", "the answer is not that of the leg", ""},
	{"ineligible_choices", "the answer has several choices", ""},
	{"ineligible_prompt_ids", "the answer does not tell in one piece which ids its prompt had", ""},
	{"ineligible_" + answer.Unparsable, "an event of the answer can't be read", ""},
	{"ineligible_" + convcache.WhyFinish, "generation ended neither by itself nor at its limit nor with tool calls", ""},
	{"ineligible_" + convcache.WhyStopString, "a stop string ended it: blocks hold tokens that the text lacks", ""},
	{"ineligible_" + convcache.WhyReasoning, "`--proof history`: thinking precedes the answer, and templates drop it", ""},
	{"ineligible_" + convcache.WhyTooLarge, "`--proof history`: the reply is larger than 8 MiB", ""},
	{"ineligible_" + convcache.WhyEmpty, "`--proof history`: the reply has neither text nor tool calls", ""},
	{"ineligible_" + convcache.WhyToolArguments, "`--proof history`: the template would print tool calls otherwise than decode generated them", ""},
	{"ineligible_" + convcache.WhyUnicode, "`--proof history`: the reply has a character that generation left incomplete", ""},
	{"ineligible_" + convcache.WhyWhitespace, "`--proof history`: the reply begins or ends with white space, which templates trim", ""},
}

// meaning explains the reason of a miss, as a clause.
func meaning(reason string) string {
	for _, term := range missReasons {
		if term.Name == reason {
			return term.Means
		}
	}
	if why, found := strings.CutPrefix(reason, "ineligible_unproven;why="); found {
		return "an engine lacks what the proof needs (" + why + ")"
	}
	why := strings.TrimPrefix(reason, "ineligible_")
	for _, term := range ineligibleReasons {
		if term.Name == why {
			return term.Means
		}
	}
	return "the request can't take part (" + why + ")"
}
