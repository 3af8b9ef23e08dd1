package body

import (
	"slices"
	"strconv"
	"strings"

	"carryover/sse/rawjson"
)

// These reasons say why the ids of /tokenize can't be compared with the completion endpoint's, so that nothing proves a ticket.
// WhyTruncate and WhyEcho are reasons here too.
const (
	// WhyUnknownMember: a member may shape the prompt; or messages, a prompt or a member have a value that engines refuse, or that
	// /tokenize may read differently, such as the reasoning effort "none".
	WhyUnknownMember = "unknown_member"
	// WhyContent: engines ignore forwarded ids for messages with more than text (has_non_text_content in renderers/chat_utils.py).
	WhyContent    = "non_text_content"
	WhyTooComplex = "too_complex" // more features than maxFeatures allows
)

// maxFeatures bounds a feature set: clients choose the names of template arguments and roles, and feature sets are remembered.
const maxFeatures = 1 << 10

// FeatureSet names the shape of the request, as far as it decides whether /tokenize renders what the completion endpoint renders.
// Parity is learnt for each name (fleet/facts/parity.go). The name has
//
//   - the names of the members that shape the prompt;
//   - the values of tool_choice (the mode), reasoning_effort, response_format (the type), add_generation_prompt and
//     continue_final_message: they select branches in templates and renderers, some invisible to /tokenize;
//   - the keys of chat_template_kwargs;
//   - the roles, and for each whether content is a string or parts and whether tool_calls, reasoning,
//     reasoning_content or name occur.
//
// comparable is false if the shape rules a comparison out. Any unknown member does so: vLLM 0.32 ignores it, but the next version may
// not, and parity learnt without the member would not notice.
func (r *Request) FeatureSet() (key string, comparable bool) {
	f, why := r.Prompt().features()
	key, f.key = string(f.key), nil
	r.shape = shape{f, why, true}
	return key, why == ""
}

type features struct {
	key     []byte
	renamed bool // a message has reasoning_content
}

// shape is the result of FeatureSet. [Request.TokenizeBody] reads it and stores nothing, because it may run beside the turn.
type shape struct {
	features
	why   string
	known bool
}

func (p Prompt) features() (f features, why string) {
	f.key = append(make([]byte, 0, 256), "chat;"...)
	if p.api == Text {
		f.key = append(f.key[:0], "text;"...)
	}
	if why = f.addMembers(p.api, p.body); why != "" {
		return f, why
	}
	if p.api == Text {
		if p.kind() != promptText {
			return f, WhyUnknownMember
		}
	} else if why = f.addMessages(p.history); why != "" {
		return f, why
	}
	if len(f.key) > maxFeatures {
		return f, WhyTooComplex
	}
	return f, ""
}

func (f *features) addMembers(api API, body *rawjson.Object) (why string) {
	var found []string
	for raw, value := range body.Members() {
		name := string(raw)
		switch {
		// pydantic takes null for absent, but in tool_choice null keeps vLLM from putting "auto" there (check_tool_usage,
		// chat_completion/protocol.py).
		case rawjson.IsNull(value) && name != "tool_choice" || name == api.subject():
		case name == WhyTruncate:
			return WhyTruncate
		case name == WhyEcho && !off(value):
			return WhyEcho
		case shapesPrompt(name):
			feature, why := memberFeature(name, value)
			if why != "" {
				return why
			}
			found = append(found, feature)
		case !leavesPrompt(name):
			return WhyUnknownMember
		}
	}
	slices.Sort(found)
	for _, feature := range found {
		f.key = append(append(f.key, feature...), ';')
	}
	return ""
}

func (a API) subject() string {
	switch a {
	case Text:
		return "prompt"
	case Responses:
		return "input"
	}
	return "messages"
}

// memberFeature returns a member's name, with its value if that selects a branch in a template or renderer.
func memberFeature(name string, value []byte) (feature, why string) {
	feature = strconv.Quote(name)
	switch name {
	case "functions", "function_call", "suffix":
		// vLLM does not render these for any model, and /tokenize does not take them.
		return "", WhyUnknownMember
	case "tool_choice":
		if value[0] == '{' {
			return feature + "=named", ""
		}
		return oneOf(feature, value, "null", `"none"`, `"auto"`, `"required"`)
	case "add_generation_prompt", "continue_final_message":
		return oneOf(feature, value, "true", "false")
	case "reasoning_effort":
		if string(value) == `"none"` {
			return "", WhyUnknownMember
		}
		return oneOf(feature, value, `"minimal"`, `"low"`, `"medium"`, `"high"`, `"xhigh"`, `"max"`)
	case "response_format":
		o, err := rawjson.ParseObject(value)
		if err != nil {
			return "", WhyUnknownMember
		}
		return oneOf(feature, o.Get("type"), `"text"`, `"json_object"`, `"json_schema"`, `"structural_tag"`)
	case "chat_template_kwargs":
		o, err := rawjson.ParseObject(value)
		if err != nil {
			return "", WhyUnknownMember
		}
		var keys []string
		for name := range o.Members() {
			keys = append(keys, strconv.Quote(string(name)))
		}
		slices.Sort(keys)
		return feature + "=" + strings.Join(keys, ","), ""
	}
	return feature, ""
}

// oneOf refuses values that are not spelled as in the list. Engines may accept other spellings, and read them in unknown ways.
func oneOf(feature string, value []byte, list ...string) (string, string) {
	if slices.Contains(list, string(value)) {
		return feature + "=" + string(value), ""
	}
	return "", WhyUnknownMember
}

// leavesPrompt lists members that do not shape the rendered prompt: those that vLLM 0.33 does not pass to the renderer
// (chat_completion/protocol.py, completion/protocol.py), members of OpenAI's API for accounting, caching and storage, and those by which
// clients and gateways name a request. vLLM ignores the last two kinds. It also ignores verbosity, modalities, audio, prediction,
// web_search_options and thinking; they are not listed, because a prompt could come to show them.
func leavesPrompt(name string) bool {
	switch name {
	case "model", "stream", "stream_options", "stream_interval", "n", "best_of", "max_tokens", "max_completion_tokens",
		"min_tokens", "min_completion_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids",
		"include_stop_str_in_output", "ignore_eos", "frequency_penalty", "presence_penalty", "repetition_penalty",
		"length_penalty", "repetition_detection", "logit_bias", "bad_words", "allowed_token_ids", "watermarking",
		"logprobs", "top_logprobs", "prompt_logprobs", "logprob_token_ids", "use_beam_search", "early_stopping",
		"skip_special_tokens", "spaces_between_special_tokens", "thinking_token_budget", "include_reasoning",
		"parallel_tool_calls", "echo", "priority", "request_id", "session_id", "cache_salt", "vllm_xargs",
		"return_tokens_as_token_ids", "return_token_ids", "return_token_offsets", "return_prompt_text",
		"routed_experts_prompt_start", "mm_payload", "return_mm_kwargs", "return_weight_versions",
		"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
		"prompt_cache_options", "conversation_id", "conversation", "chat_id", "thread_id", "message_id", "client_metadata",
		"litellm_session_id", "litellm_call_id", "litellm_trace_id", "litellm_metadata", "trace_id", "tags":
		return true
	}
	return false
}

// WhyN says that a request asks for several answers; decode serves it alone, without kv_transfer_params.
const WhyN = "n"

// These reasons keep a request from reuse, whatever the proof. All but WhyEcho also keep it from prefill.
const (
	WhyEcho           = "echo"
	WhyPromptLogprobs = "prompt_logprobs"
	WhyTruncate       = "truncate_prompt_tokens"
)

// Disaggregable reports whether the request can run as a prefill and a decode leg, or why not.
func (r *Request) Disaggregable() (why string, ok bool) {
	if r.API.Rendered() {
		// "auto" cuts to the model's length less the answer's limit (build_tok_params). That differs between the legs, and so would
		// their prompts.
		if raw := r.body.Get("truncation"); r.API == Responses && !rawjson.IsNull(raw) && string(raw) != `"disabled"` {
			return WhyTruncate, false
		}
		return "", true
	}
	// vLLM returns params for one sequence only: the last finished child of n, the first of several prompts (vllm#19902, vllm#43509).
	// The blocks of the others would stay pinned.
	if best := r.body.Get("best_of"); r.n != 1 || !rawjson.IsNull(best) && string(best) != "1" {
		return WhyN, false
	}
	if r.API == Text {
		// Embeddings are a prompt of their own beside the prompt, and have no token ids (completion/protocol.py).
		if kind := r.Prompt().kind(); kind == promptTextBatch || kind == promptTokensBatch || !rawjson.IsNull(r.body.Get("prompt_embeds")) {
			return WhyN, false
		}
	}
	// Prompt logprobs need a prompt that is computed, not read; with echo, logprobs and top_logprobs include the prompt
	// (to_sampling_params). After a hand-over decode computes the prompt for them again (measured on 0.33).
	if !rawjson.IsNull(r.body.Get(WhyPromptLogprobs)) ||
		!off(r.body.Get("echo")) && (!rawjson.IsNull(r.body.Get("logprobs")) || !rawjson.IsNull(r.body.Get("top_logprobs"))) {
		return WhyPromptLogprobs, false
	}
	// vLLM's beam search drops kv_transfer_params (to_beam_search_params).
	if !off(r.body.Get("use_beam_search")) {
		return WhyN, false
	}
	// -1 and 0 truncate to the model's length less max_tokens (TokenizeParams in renderers/params.py). That differs between the legs,
	// and so would their prompts.
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
	if kind := r.Prompt().kind(); r.API == Text && (kind == promptTextBatch || kind == promptTokensBatch) {
		prompts = 0
		for range rawjson.Elements(r.Prompt().Text()) {
			prompts++
		}
	}
	return prompts * r.n
}

// Reusable reports whether the request may use or leave a ticket, or why not. It checks only what rules out every proof.
func (r *Request) Reusable() (why string, ok bool) {
	if r.API.Rendered() { // these members do not exist there, and ids prove plain text only
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

// off is true for null and false only: pydantic reads "yes", "on" and 1 as true.
func off(raw []byte) bool { return rawjson.IsNull(raw) || string(raw) == "false" }
