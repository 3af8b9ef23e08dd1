package upstream

import (
	"slices"

	"carryover/sse/rawjson"
)

// PrefillEdit says what the prefill leg adds to the client's body.
type PrefillEdit struct {
	Members        []Member // what the connector puts in or takes out, kv_transfer_params before all
	ReturnTokenIDs bool     // ask for the ids of the prompt that prefill rendered
	CacheSalt      string   // replaces the client's cache_salt; "" keeps it
	PromptIDs      []byte   // the id list that replaces a text completion's prompt; nil keeps the client's
	AnswerID       string   // as in DecodeEdit, for a leg to the client's own endpoint
}

// DecodeEdit says what the decode leg adds to the client's body.
type DecodeEdit struct {
	Members        []Member // what the connector puts in or takes out, kv_transfer_params before all
	OneToken       bool     // one token, not streamed: the decode that only makes prefill's blocks be read
	Whole          bool     // answered in one piece, whatever the client asked for
	ReturnTokenIDs bool     // ask for the ids of prompt and output; false keeps what the client asked
	Usage          bool     // ask for the usage at the end of the stream; false keeps what the client asked
	CacheSalt      string   // replaces the client's cache_salt; "" keeps it. Decode reads prefill's blocks whatever their salt is
	PromptIDs      []byte   // the id list that replaces a text completion's prompt, as on the prefill leg
	AnswerID       string   // the id that a response is to have, of which engines take none from a header; "" for other APIs
}

// PrefillBody returns the body of the prefill leg: one token, not streamed,
// because kv_transfer_params come in whole answers only, and without what shapes
// nothing but the discarded answer. Everything that shapes the prompt stays
// identical to the decode leg: vLLM transfers by position and asserts equal
// block counts inside the engine step (nixl/pull_worker.py).
func (r *Request) PrefillBody(e PrefillEdit) rawjson.Pieces {
	if r.api.Rendered() {
		return r.agentPrefillBody(e)
	}
	changes := make(rawjson.Edits, 0, 18)
	oneToken(&changes)
	// vLLM answers with the params of one child only and pins the blocks of each
	// (vllm#43509).
	changes.ReplaceWord("n", "1")
	// Output only, all in chat_completion/protocol.py and completion/protocol.py.
	// logprob_token_ids must go with logprobs, without which it is a 400
	// (check_logprobs). echo makes prompt_logprobs out of top_logprobs
	// (to_sampling_params), and prompt_logprobs stops the engine from reading its
	// prefix cache.
	changes.Remove("logprobs", "top_logprobs", "logprob_token_ids", "prompt_logprobs", "echo", "return_prompt_text")
	if e.ReturnTokenIDs {
		changes.SetWord("return_token_ids", "true")
	} else {
		changes.Remove("return_token_ids")
	}
	owned(&changes, e.Members, e.CacheSalt)
	r.replacePrompt(&changes, e.PromptIDs)
	return r.body.Splice(changes)
}

// DecodeBody returns the body of the decode leg: the client's, byte for byte,
// but for the members that Carryover owns.
func (r *Request) DecodeBody(e DecodeEdit) rawjson.Pieces {
	if r.api.Rendered() {
		return r.agentDecodeBody(e)
	}
	changes := make(rawjson.Edits, 0, 8)
	members := e.Members
	switch {
	case e.OneToken:
		oneToken(&changes)
		members = slices.DeleteFunc(slices.Clone(members), boundsAnswer)
	case e.Whole:
		whole(&changes)
	case e.Usage:
		// continuous_usage_stats would come into effect with it.
		changes.SetWord("stream_options", `{"include_usage":true}`)
	}
	if e.ReturnTokenIDs {
		changes.SetWord("return_token_ids", "true")
	}
	owned(&changes, members, e.CacheSalt)
	r.replacePrompt(&changes, e.PromptIDs)
	return r.body.Splice(changes)
}

// replacePrompt makes a text completion's leg compute exactly these ids. Engines
// add no special tokens to them. Chat legs carry theirs in kv_transfer_params.
func (r *Request) replacePrompt(changes *rawjson.Edits, ids []byte) {
	if r.api == Text && ids != nil {
		changes.Set("prompt", ids)
	}
}

// whole makes a leg answer in one piece.
func whole(e *rawjson.Edits) {
	e.SetWord("stream", "false")
	// A 400 without stream: validate_stream_options, chat_completion/protocol.py.
	e.Remove("stream_options")
}

// oneToken makes a leg generate one token and answer in one piece.
func oneToken(e *rawjson.Edits) {
	whole(e)
	// Chat reads max_completion_tokens first and would generate everything if only
	// max_tokens were set; null there falls back to max_tokens.
	e.SetWord("max_tokens", "1")
	e.ReplaceWord("max_completion_tokens", "1")
	// More than max_tokens is a 400 (sampling_params.py). The second spelling is one
	// that vLLM's toy_proxy_server.py drops too.
	e.Remove("min_tokens", "min_completion_tokens")
}

// boundsAnswer reports whether a member is one of those that oneToken sets, so that no connector undoes it.
func boundsAnswer(m Member) bool {
	switch m.Name {
	case "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "min_completion_tokens":
		return true
	}
	return false
}

// owned sets the members that are not the client's: those of the connector, and the salt, unless the connector has one. A
// client's kv_transfer_params and ec_transfer_params are gone since ParseRequest.
func owned(e *rawjson.Edits, members []Member, salt string) {
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
