package body

import (
	"slices"

	"carryover/sse/rawjson"
)

// LegEdit says what a leg adds to the client's body.
type LegEdit struct {
	Members        []Member // the connector's changes, kv_transfer_params first
	ReturnTokenIDs bool     // ask for the ids of the rendered prompt, and of the output; false keeps the client's choice on decode
	Usage          bool     // ask for the usage at the end of decode's stream; false keeps the client's choice
	CacheSalt      string   // replaces the client's cache_salt; "" keeps it. Decode reads prefill's blocks whatever their salt
	PromptIDs      []byte   // list of ids that replaces a text completion's prompt; nil keeps the client's prompt
	RequestID      string   // X-Request-Id of the leg; "" leaves the id of a response to the engine
}

// ResponseID returns the id of the response to a leg, in the form that clients know. Engines do not take it from X-Request-Id.
func ResponseID(requestID string) string { return "resp_" + requestID }

// Member is a top-level member of a body.
type Member struct {
	Name  string
	Value []byte // raw JSON; nil removes the member
}

// PrefillBody returns the body of the prefill leg: one token, not streamed, because only whole answers have
// kv_transfer_params, and without members that shape only the discarded answer. All that shapes the prompt is as in the
// decode leg: vLLM transfers by position and asserts equal block counts inside the engine step (nixl/pull_worker.py). With
// the ids of a rendered prompt the leg is a text completion, so one path and one id echo serve Messages and Responses; the
// render endpoint has already refused what their own endpoints would refuse.
func (r *Request) PrefillBody(e LegEdit) rawjson.Pieces {
	if r.API.Rendered() && e.PromptIDs != nil {
		return e.completion(r)
	}
	changes := make(rawjson.Edits, 0, 18)
	oneToken(&changes, r)
	if r.API.Rendered() {
		// A thinking budget stays: it shapes the prompt, and vLLM does not compare it with the limit of a prefill leg.
		changes.Remove("stop", "stop_sequences", "stop_token_ids")
	} else {
		// vLLM answers with the params of one child only, but pins the blocks of each (vllm#43509).
		changes.ReplaceWord("n", "1")
		// These shape only the answer (chat_completion/protocol.py, completion/protocol.py). So do logprobs, which stay:
		// prefill refuses too many of them before it computes.
		changes.Remove("echo", "return_prompt_text", "return_token_ids")
	}
	return e.apply(&r.body, r.API, changes)
}

// RescueBody returns the body and the API of a decode leg of one token that only reads prefill's KV. With ids, or with a
// prompt among the members, it is a text completion, else the request that prefill has accepted: it has nothing of the
// client's that an engine could refuse.
func (r *Request) RescueBody(e LegEdit) (API, rawjson.Pieces) {
	for _, m := range e.Members {
		if m.Name == "prompt" {
			e.PromptIDs = m.Value
		}
	}
	if e.PromptIDs == nil {
		e.Members = append(e.Members, Member{Name: "logprobs"}, Member{Name: "top_logprobs"}, Member{Name: "logprob_token_ids"}) // decode's bound may be lower
		return r.API, r.PrefillBody(e)
	}
	return Text, e.completion(r)
}

// completion returns a text completion of one token with a prompt's ids. From the client's body it takes only the model,
// the salt and the priority, which Messages ignores.
func (e LegEdit) completion(r *Request) rawjson.Pieces {
	completion, err := rawjson.ParseObject([]byte(`{"max_tokens":1,"stream":false}`))
	if err != nil { // never
		return nil
	}
	changes := make(rawjson.Edits, 0, 18)
	for _, name := range [...]string{"model", "priority", "cache_salt"} {
		if raw := r.body.Get(name); !rawjson.IsNull(raw) && (name != "priority" || r.API == Responses) {
			changes.Set(name, raw)
		}
	}
	return e.apply(&completion, Text, changes)
}

// DecodeBody returns the client's body, byte for byte, except the members that Carryover owns. e.Members has the ids of a
// rendered prompt.
func (r *Request) DecodeBody(e LegEdit) rawjson.Pieces {
	changes := make(rawjson.Edits, 0, 8)
	if e.Usage && !r.API.Rendered() {
		// continuous_usage_stats, if the client sent it, would take effect too.
		changes.SetWord("stream_options", `{"include_usage":true}`)
	}
	return e.apply(&r.body, r.API, changes)
}

// RenderBody returns the body for the render endpoint of the request's API, which takes what the API's own endpoint takes.
func (r *Request) RenderBody() []byte {
	var changes rawjson.Edits
	changes.Remove("stream", "stream_options")
	if r.API == Responses {
		changes.SetWord("store", "false")
	}
	return r.body.Rewrite(changes)
}

func oneToken(e *rawjson.Edits, r *Request) {
	e.SetWord("stream", "false")
	if r.Stream { // without stream they are a 400 (validate_stream_options, chat_completion/protocol.py)
		e.Remove("stream_options")
	}
	// A minimum above max_tokens is a 400 (sampling_params.py).
	e.Remove("min_tokens")
	if r.API == Responses {
		e.SetWord("max_output_tokens", "1")
		return
	}
	e.SetWord("max_tokens", "1")
	if !r.API.Rendered() {
		// Chat reads max_completion_tokens first and would generate the whole answer if only max_tokens were set; null
		// there falls back to max_tokens.
		e.ReplaceWord("max_completion_tokens", "1")
		e.Remove("min_completion_tokens") // as vLLM's toy_proxy_server.py does
	}
}

// apply returns the body with this leg's changes and what every leg of the API gets. Chat legs carry their ids in
// kv_transfer_params, and engines add no special tokens to ids. In a Responses leg our own members are the id, which identifies
// the answer, and store, so that the engine stores nothing. The connector's salt comes before the edit's. ParseRequest has
// removed the client's kv_transfer_params and ec_transfer_params.
func (e LegEdit) apply(to *rawjson.Object, api API, changes rawjson.Edits) rawjson.Pieces {
	if api == Text && e.PromptIDs != nil {
		changes.Set("prompt", e.PromptIDs)
	}
	switch {
	case api == Responses:
		if e.RequestID != "" {
			changes.Set("request_id", rawjson.Quote(ResponseID(e.RequestID)))
		}
		changes.SetWord("store", "false")
		if e.ReturnTokenIDs {
			changes.SetWord(responseMessages, "true")
		}
	case e.ReturnTokenIDs && !api.Rendered():
		changes.SetWord("return_token_ids", "true")
	}
	for _, m := range e.Members {
		if m.Name == "cache_salt" {
			e.CacheSalt = ""
		}
		if m.Value == nil {
			changes.Remove(m.Name)
		} else {
			changes.Set(m.Name, m.Value)
		}
	}
	if e.CacheSalt != "" {
		changes.Set("cache_salt", rawjson.Quote(e.CacheSalt))
	}
	return to.Splice(changes)
}

// TokenizeBody returns a body with which /tokenize renders what the completion endpoint would. TokenizeChatRequest and
// TokenizeCompletionRequest (serve/tokenize/protocol.py) have only some of the members, and take three others under
// another name. Values keep their bytes. why says why a request is not comparable, see [Request.FeatureSet]. Prompts that
// are ids need no body. The body is in buffer if it fits.
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
	body = append(slices.Grow(buffer[:0], r.body.Size()+128), '{')
	put := func(name, value []byte) {
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(append(append(body, '"'), name...), `":`...)
		body = append(body, value...)
	}
	for name, value := range r.body.Members() {
		if rawjson.IsNull(value) || !r.API.tokenizes(string(name)) {
			continue
		}
		if f.renamed && string(name) == "messages" {
			if value, ok = renameReasoning(value); !ok {
				return nil, WhyUnknownMember, false
			}
		}
		put(name, value)
	}
	if kwargs != nil && r.API == Chat {
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
// reasoning_effort (build_chat_params, chat_completion/protocol.py), nil for none. The latter two replace arguments of the
// same name, and an effort turns thinking on unless the arguments set it.
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
