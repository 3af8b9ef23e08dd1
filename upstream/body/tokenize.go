package body

import (
	"slices"

	"carryover/sse/rawjson"
)

// TokenizeBody returns a body with which /tokenize renders what the completion endpoint would, as far as a body can
// express that: TokenizeChatRequest and TokenizeCompletionRequest (serve/tokenize/protocol.py) have only some of the
// members, and take three others under another name. Values keep their bytes. If the request is not comparable, ok is
// false and why says why, see [Request.FeatureSet]. Prompts that are ids need no body. buffer is used if the body
// fits.
func (r *Request) TokenizeBody(buffer []byte) (body []byte, why string, ok bool) {
	f := r.shape
	if !f.known {
		f.features, f.why = r.Prompt().features()
	}
	if f.why != "" {
		return nil, f.why, false
	}
	kwargs, ok := templateKwargs(r.body.Get("chat_template_kwargs"), r.body.Get("documents"), r.body.Get("reasoning_effort"))
	if !ok {
		return nil, WhyUnknownMember, false
	}
	body = append(slices.Grow(buffer[:0], r.Size()+128), '{')
	put := func(name, value []byte) {
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(append(append(body, '"'), name...), `":`...)
		body = append(body, value...)
	}
	for name, value := range r.body.Members() {
		if rawjson.IsNull(value) || !r.api.tokenizes(string(name)) {
			continue
		}
		if f.renamed && string(name) == "messages" {
			if value, ok = renameReasoning(value); !ok {
				return nil, WhyUnknownMember, false
			}
		}
		put(name, value)
	}
	if kwargs != nil && r.api == Chat {
		put([]byte("chat_template_kwargs"), kwargs)
	}
	return append(body, '}'), "", true
}

// tokenizes lists the members that /tokenize takes in the API's own form.
func (a API) tokenizes(name string) bool {
	switch name {
	case "model", "add_special_tokens":
		return true
	case "prompt":
		return a == Text
	case "messages", "tools", "chat_template", "add_generation_prompt", "continue_final_message", "mm_processor_kwargs",
		"media_io_kwargs":
		return a == Chat
	}
	return false
}

// templateKwargs returns the template arguments that the chat endpoint makes of chat_template_kwargs, documents and
// reasoning_effort (build_chat_params, chat_completion/protocol.py): the latter two replace arguments of the same
// name, and an effort turns thinking on unless the arguments set it. nil means none.
func templateKwargs(kwargs, documents, effort []byte) (merged []byte, ok bool) {
	if rawjson.IsNull(kwargs) {
		kwargs = nil
	}
	if rawjson.IsNull(documents) && rawjson.IsNull(effort) {
		return kwargs, true
	}
	if kwargs == nil {
		kwargs = []byte("{}")
	}
	o, err := rawjson.ParseObject(kwargs)
	if err != nil {
		return nil, false
	}
	var changes rawjson.Edits
	if !rawjson.IsNull(documents) {
		changes.Set("documents", documents)
	}
	if !rawjson.IsNull(effort) {
		changes.Set("reasoning_effort", effort)
		if !o.Has("enable_thinking") {
			changes.Set("enable_thinking", []byte("true"))
		}
	}
	return o.Rewrite(changes), true
}
