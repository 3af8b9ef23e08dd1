package body

import "carryover/sse/rawjson"

// WhyN is why a request goes to decode alone, without kv_transfer_params: it asks for several answers.
const WhyN = "n"

// Why a request takes no part in reuse, whatever the proof. All but WhyEcho also keep a request from prefill.
const (
	WhyEcho           = "echo"
	WhyPromptLogprobs = "prompt_logprobs"
	WhyTruncate       = "truncate_prompt_tokens"
)

// Disaggregable reports whether the request can run as a prefill and a decode leg; why says why not.
func (r *Request) Disaggregable() (why string, ok bool) {
	if r.api.Rendered() {
		// "auto" cuts to the model's length less the limit of the answer (build_tok_params), which differs between the
		// legs: their prompts would too.
		if raw := r.body.Get("truncation"); r.api == Responses && !rawjson.IsNull(raw) && string(raw) != `"disabled"` {
			return WhyTruncate, false
		}
		return "", true
	}
	// vLLM returns params for one sequence only: the last finished child of n, the first of several prompts
	// (vllm#19902, vllm#43509). The blocks of the others would stay pinned.
	if best := r.body.Get("best_of"); r.n != 1 || !rawjson.IsNull(best) && string(best) != "1" {
		return WhyN, false
	}
	if r.api == Text {
		// Embeddings come beside the prompt, as a prompt of their own, and have no token ids (completion/protocol.py).
		if kind := r.Prompt().kind(); kind == promptTextBatch || kind == promptTokensBatch || !rawjson.IsNull(r.body.Get("prompt_embeds")) {
			return WhyN, false
		}
	}
	// Prompt logprobs need a prompt that is computed, not read. With echo, logprobs and top_logprobs are logprobs of the
	// prompt, too (to_sampling_params). Decode computes the prompt for them after a hand-over as well (measured on 0.33).
	if !rawjson.IsNull(r.body.Get(WhyPromptLogprobs)) ||
		!off(r.body.Get("echo")) && (!rawjson.IsNull(r.body.Get("logprobs")) || !rawjson.IsNull(r.body.Get("top_logprobs"))) {
		return WhyPromptLogprobs, false
	}
	// The beam path of vLLM drops kv_transfer_params (to_beam_search_params).
	if !off(r.body.Get("use_beam_search")) {
		return WhyN, false
	}
	// -1 and 0 truncate to the model's length less max_tokens (TokenizeParams in
	// renderers/params.py), which differs between the legs: the prompts would too.
	if raw := r.body.Get(WhyTruncate); !rawjson.IsNull(raw) {
		if n, isInt := rawjson.Integer(raw); !isInt || n < 1 {
			return WhyTruncate, false
		}
	}
	return "", true
}

// Choices returns how many choices a chat or text completion asks for: n for each of its prompts.
func (r *Request) Choices() int {
	prompts := 1
	if kind := r.Prompt().kind(); r.api == Text && (kind == promptTextBatch || kind == promptTokensBatch) {
		prompts = 0
		for range rawjson.Elements(r.Prompt().Text()) {
			prompts++
		}
	}
	return prompts * r.n
}

// Reusable reports whether the request may use or leave a ticket; why says why not. It checks only what rules out
// every proof.
func (r *Request) Reusable() (why string, ok bool) {
	if r.api.Rendered() { // these members do not exist there, and ids prove plain text only
		return "", true
	}
	// With echo, engines ignore forwarded ids and render anew.
	if !off(r.body.Get("echo")) {
		return WhyEcho, false
	}
	// A longer history that is truncated from the left does not continue the shorter one.
	if !rawjson.IsNull(r.body.Get(WhyTruncate)) {
		return WhyTruncate, false
	}
	return "", true
}

// off reports whether a flag is certainly not set. pydantic reads "yes", "on" and 1 as true, so every value but null
// and false counts as set.
func off(raw []byte) bool { return rawjson.IsNull(raw) || string(raw) == "false" }
