package body

import (
	"bytes"
	"strings"

	"carryover/sse/rawjson"
)

// promptKind is the shape of a text completion's prompt.
type promptKind int

// The kinds of prompt. promptNone also stands for what vLLM will refuse: a prompt of another type, an empty list.
const (
	promptNone promptKind = iota
	promptText
	promptTokens
	promptTextBatch
	promptTokensBatch
)

// Prompt returns the raw prompt and its kind. A list is judged by its first element; vLLM refuses lists of mixed
// kinds.
func (r *Request) Prompt() (promptKind, []byte) {
	raw := r.body.Get("prompt")
	if rawjson.IsNull(raw) {
		return promptNone, raw
	}
	if raw[0] == '"' {
		return promptText, raw
	}
	if raw[0] != '[' {
		return promptNone, raw
	}
	switch first := bytes.TrimLeft(raw[1:], " \t\r\n")[0]; {
	case first == '"':
		return promptTextBatch, raw
	case first == '[':
		return promptTokensBatch, raw
	case first == '-' || '0' <= first && first <= '9':
		return promptTokens, raw
	}
	return promptNone, raw
}

// PromptScope returns the members, other than messages and prompt, that shape
// the rendered prompt, in the body's order. The model and cache_salt are not
// among them: they are part of a conversation's identity.
func (r *Request) PromptScope() []Member {
	var scope []Member
	for name, value := range r.body.Members() {
		if shapesPrompt(string(name)) || r.api.shapes(string(name)) {
			scope = append(scope, Member{Name: string(name), Value: value})
		}
	}
	return scope
}

// shapesPrompt lists the members that vLLM passes to the renderer: build_chat_params and build_tok_params in
// chat_completion/protocol.py and completion/protocol.py.
//
// The list also has members that vLLM does not pass today, because they rarely change in the middle of a conversation
// and a miss is cheap: structured_outputs and guided_*, other spellings of response_format, which is passed; functions
// and function_call, the old names of tools and tool_choice; suffix, which a model with a fill-in template would
// render. include_reasoning is not in the list: it acts on the answer alone, see HidesReasoning.
func shapesPrompt(name string) bool {
	switch name {
	case "tools", "tool_choice", "response_format", "chat_template", "chat_template_kwargs", "documents",
		"reasoning_effort", "add_generation_prompt", "continue_final_message", "add_special_tokens",
		"mm_processor_kwargs", "media_io_kwargs", "truncation_side", "truncate_prompt_tokens",
		"structured_outputs", "functions", "function_call", "suffix":
		return true
	}
	return strings.HasPrefix(name, "guided_")
}

// HidesReasoning reports whether the client asked vLLM to leave reasoning out of the answer (include_reasoning).
// Decode's blocks then contain tokens that are never shown, so an equal history proves nothing.
func (r *Request) HidesReasoning() bool {
	raw := r.body.Get("include_reasoning")
	return raw != nil && string(raw) != "true"
}
