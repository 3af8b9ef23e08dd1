package record

import "carryover/upstream/body"

// AloneReasons returns why decode serves a turn alone.
func AloneReasons() []Term { return aloneReasons }

//nolint:gochecknoglobals // immutable table
var aloneReasons = []Term{
	{WhyThreshold, "Decode served the turn alone: fewer tokens were left to compute than `--disagg-threshold`. The conversation's ticket stays where it is.", ""},
	{WhyLimits, "Decode served the turn alone: prefill takes no prompt of this length, or decode refuses the length or `max_tokens`, so that nothing is computed for it.", "Give both roles the same `--max-model-len`."},
	{body.WhyN, "Decode served the turn alone: a request for several answers (n, several prompts, a beam search) or of embeddings can't be handed over.", ""},
	{body.WhyTruncate, "Decode served the turn alone: prefill and decode would cut the prompt differently.", ""},
	{WhyUnavailable, "Decode served the turn alone: no prefill instance could be reached.", "Check the prefill instances."},
	{WhyQuarantined, "Decode served the turn alone: the prefill instances that could be reached are under quarantine.", "Restart them."},
	{WhyFailed, "Decode served the turn alone: prefill failed, has not the model, or gave nothing that decode could read.", "Look at `blame` and `kind` in the log line."},
	{WhyNoPrefiller, "Decode served the turn alone: requests have to name their prefill instance (`--prefiller-allow`), and this one named none.", ""},
	{WhyConnector, "Decode served the turn alone: the KV connector can't move this request or turns of this API, or prefill had nothing for decode.", ""},
	{"prompt_too_long", "Decode served the turn alone: LMCache would not announce the KV of a prompt of this length.", "Raise `--lmcache-max-prompt-tokens` if LMCache's buffer is large enough."},
	{"prompt_too_short", "Decode served the turn alone: the prompt is shorter than one chunk of LMCache.", ""},
	{"context_unknown", "Decode served the turn alone: the model's context length is not known, and the chat may use all of it (LMCache).", ""},
	{body.WhyPromptLogprobs, "Decode served the turn alone: two engines can't answer a request for log probabilities of its prompt together.", ""},
	{"no_receiver", "Decode served the turn alone: it is not known where the decode instance receives KV (LMCache).", "Set `--decoder-registry`."},
}
