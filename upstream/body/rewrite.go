package body

import (
	"slices"

	"carryover/sse/rawjson"
)

// PrefillEdit says what the prefill leg adds to the client's body.
type PrefillEdit struct {
	Members        []Member // added or removed by the connector, kv_transfer_params first
	ReturnTokenIDs bool     // ask for the ids of the prompt that prefill rendered
	CacheSalt      string   // replaces the client's cache_salt; "" keeps it
	PromptIDs      []byte   // list of ids that replaces a text completion's prompt; nil keeps the client's prompt
	AnswerID       string   // as in DecodeEdit, for a leg to the client's own endpoint
}

// DecodeEdit says what the decode leg adds to the client's body.
type DecodeEdit struct {
	Members        []Member // added or removed by the connector, kv_transfer_params first
	ReturnTokenIDs bool     // ask for the ids of prompt and output; false keeps the client's choice
	Usage          bool     // ask for the usage at the end of the stream; false keeps the client's choice
	CacheSalt      string   // replaces the client's cache_salt; "" keeps it. Decode reads prefill's blocks whatever their salt
	PromptIDs      []byte   // list of ids that replaces a text completion's prompt, as on the prefill leg
	AnswerID       string   // the id of a response, which engines do not take from a header; "" for other APIs
}

// Member is a top-level member of a body.
type Member struct {
	Name  string
	Value []byte // raw JSON; nil removes the member
}

// PrefillBody returns the body of the prefill leg: one token, not streamed, because only whole answers have
// kv_transfer_params, and without members that shape only the discarded answer. All that shapes the prompt stays
// identical to the decode leg: vLLM transfers by position and asserts equal block counts inside the engine step
// (nixl/pull_worker.py). With the ids of a rendered prompt the leg is a text completion, so that one path and one id
// echo serve Messages and Responses. The render endpoint has by then refused what the request's own endpoint would
// refuse.
func (r *Request) PrefillBody(e PrefillEdit) rawjson.Pieces {
	changes := legEdits{make(rawjson.Edits, 0, 18), r.api}
	if r.api.Rendered() && e.PromptIDs != nil {
		return e.completion(&r.body, changes)
	}
	changes.oneToken(r.stream)
	if r.api.Rendered() {
		// A thinking budget stays: it shapes the prompt, and vLLM does not compare it with the limit of a prefill leg.
		changes.Remove("stop", "stop_sequences", "stop_token_ids")
	} else {
		// vLLM answers with the params of one child only, but pins the blocks of each (vllm#43509).
		changes.ReplaceWord("n", "1")
		// These shape only the answer (chat_completion/protocol.py, completion/protocol.py). logprobs do so too, and stay:
		// prefill refuses too many before it computes anything.
		changes.Remove("echo", "return_prompt_text", "return_token_ids")
	}
	changes.answer(e.AnswerID, e.ReturnTokenIDs)
	changes.own(e.Members, e.CacheSalt)
	changes.replacePrompt(e.PromptIDs)
	return r.body.Splice(changes.Edits)
}

// RescueBody returns the body of a decode leg of one token whose only purpose is that prefill's KV is read, and the API
// that it goes to. With ids, or with a prompt among the members, it is a text completion, else what prefill has accepted:
// nothing that an engine could refuse is the client's.
func (r *Request) RescueBody(e PrefillEdit) (API, rawjson.Pieces) {
	for _, m := range e.Members {
		if m.Name == "prompt" {
			e.PromptIDs = m.Value
		}
	}
	if e.PromptIDs == nil {
		e.Members = append(e.Members, Member{Name: "logprobs"}, Member{Name: "top_logprobs"}, Member{Name: "logprob_token_ids"}) // decode's bound may be lower
		return r.api, r.PrefillBody(e)
	}
	return Text, e.completion(&r.body, legEdits{make(rawjson.Edits, 0, 18), r.api})
}

// completion returns a text completion of one token with the ids of a prompt. It takes only the model, the salt and
// the priority, which Messages ignores, from the client's body.
func (e PrefillEdit) completion(client *rawjson.Object, changes legEdits) rawjson.Pieces {
	completion, err := rawjson.ParseObject([]byte(`{"max_tokens":1,"stream":false}`))
	if err != nil { // never
		return nil
	}
	for _, name := range [...]string{"model", "priority", "cache_salt"} {
		if raw := client.Get(name); !rawjson.IsNull(raw) && (name != "priority" || changes.api == Responses) {
			changes.Set(name, raw)
		}
	}
	changes.api = Text
	changes.replacePrompt(e.PromptIDs)
	changes.answer("", e.ReturnTokenIDs)
	changes.own(e.Members, e.CacheSalt)
	return completion.Splice(changes.Edits)
}

// DecodeBody returns the body of the decode leg: the client's, byte for byte, except the members that Carryover owns.
// The ids of a rendered prompt are among e.Members.
func (r *Request) DecodeBody(e DecodeEdit) rawjson.Pieces {
	changes := legEdits{make(rawjson.Edits, 0, 8), r.api}
	if e.Usage && !r.api.Rendered() {
		// continuous_usage_stats, if the client sent it, would take effect too.
		changes.SetWord("stream_options", `{"include_usage":true}`)
	}
	changes.answer(e.AnswerID, e.ReturnTokenIDs)
	changes.own(e.Members, e.CacheSalt)
	changes.replacePrompt(e.PromptIDs)
	return r.body.Splice(changes.Edits)
}

// RenderBody returns the body for the render endpoint of the request's API, which takes what the API's own endpoint
// takes.
func (r *Request) RenderBody() []byte {
	var changes rawjson.Edits
	changes.Remove("stream", "stream_options")
	if r.api == Responses {
		changes.SetWord("store", "false")
	}
	return r.body.Rewrite(changes)
}

// legEdits are the edits of one leg's body. Each of its methods knows how the members are called in the API of the leg.
type legEdits struct {
	rawjson.Edits
	api API
}

// oneToken makes a leg generate one token and answer in one piece, of a request that is streamed or not.
func (e *legEdits) oneToken(stream bool) {
	e.SetWord("stream", "false")
	if stream { // without stream they are a 400, also of the client's own request (validate_stream_options, chat_completion/protocol.py)
		e.Remove("stream_options")
	}
	// A minimum above max_tokens is a 400 (sampling_params.py).
	e.Remove("min_tokens")
	if e.api == Responses {
		e.SetWord("max_output_tokens", "1")
		return
	}
	e.SetWord("max_tokens", "1")
	if !e.api.Rendered() {
		// Chat reads max_completion_tokens first and would generate the whole answer if only max_tokens were set; null
		// there falls back to max_tokens.
		e.ReplaceWord("max_completion_tokens", "1")
		e.Remove("min_completion_tokens") // as vLLM's toy_proxy_server.py does
	}
}

// answer asks for the ids of prompt and output, where an API can be asked. It sets the members of a Responses leg that
// are ours whatever the client asked for: the id, which identifies the answer, and store, so that the engine stores
// nothing.
func (e *legEdits) answer(id string, ids bool) {
	switch {
	case e.api == Responses:
		if id != "" {
			e.Set("request_id", rawjson.Quote(id))
		}
		e.SetWord("store", "false")
		if ids {
			e.SetWord(responseMessages, "true")
		}
	case ids && !e.api.Rendered():
		e.SetWord("return_token_ids", "true")
	}
}

// replacePrompt makes a text completion's leg compute exactly these ids; engines add no special tokens to ids. Chat
// legs carry their ids in kv_transfer_params.
func (e *legEdits) replacePrompt(ids []byte) {
	if e.api == Text && ids != nil {
		e.Set("prompt", ids)
	}
}

// own sets the members that do not belong to the client: the connector's, and the salt unless the connector has one.
// ParseRequest has removed the client's kv_transfer_params and ec_transfer_params.
func (e *legEdits) own(members []Member, salt string) {
	for _, m := range members {
		if m.Name == "cache_salt" {
			salt = ""
		}
		if m.Value == nil {
			e.Remove(m.Name)
		} else {
			e.Set(m.Name, m.Value)
		}
	}
	if salt != "" {
		e.Set("cache_salt", rawjson.Quote(salt))
	}
}

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
