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
	OneToken       bool     // one token, not streamed: a leg whose only purpose is that prefill's blocks are read
	Whole          bool     // the answer comes in one piece, whatever the client asked for
	ReturnTokenIDs bool     // ask for the ids of prompt and output; false keeps the client's choice
	Usage          bool     // ask for the usage at the end of the stream; false keeps the client's choice
	CacheSalt      string   // replaces the client's cache_salt; "" keeps it. Decode reads prefill's blocks whatever their salt
	PromptIDs      []byte   // list of ids that replaces a text completion's prompt, as on the prefill leg
	AnswerID       string   // the id of a response, which engines do not take from a header; "" for other APIs
}

// PrefillBody returns the body of the prefill leg: one token, not streamed, because only whole answers have
// kv_transfer_params, and without members that shape only the discarded answer. All that shapes the prompt stays
// identical to the decode leg: vLLM transfers by position and asserts equal block counts inside the engine step
// (nixl/pull_worker.py).
func (r *Request) PrefillBody(e PrefillEdit) rawjson.Pieces {
	if r.api.Rendered() {
		return r.agentPrefillBody(e)
	}
	changes := make(rawjson.Edits, 0, 18)
	oneToken(&changes)
	// vLLM answers with the params of one child only, but pins the blocks of each (vllm#43509).
	changes.ReplaceWord("n", "1")
	// These shape only the answer (chat_completion/protocol.py, completion/protocol.py). logprob_token_ids must go
	// with logprobs, without which it is a 400 (check_logprobs). With echo, top_logprobs become prompt_logprobs
	// (to_sampling_params), which stop the engine from reading its prefix cache.
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

// DecodeBody returns the body of the decode leg: the client's, byte for byte, except the members that Carryover owns.
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
		// continuous_usage_stats, if the client sent it, would take effect too.
		changes.SetWord("stream_options", `{"include_usage":true}`)
	}
	if e.ReturnTokenIDs {
		changes.SetWord("return_token_ids", "true")
	}
	owned(&changes, members, e.CacheSalt)
	r.replacePrompt(&changes, e.PromptIDs)
	return r.body.Splice(changes)
}

// replacePrompt makes a text completion's leg compute exactly these ids; engines add no special tokens to ids. Chat
// legs carry their ids in kv_transfer_params.
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
	// Chat reads max_completion_tokens first and would generate the whole answer if only max_tokens were set; null
	// there falls back to max_tokens.
	e.SetWord("max_tokens", "1")
	e.ReplaceWord("max_completion_tokens", "1")
	// A minimum above max_tokens is a 400 (sampling_params.py). vLLM's toy_proxy_server.py removes the second spelling
	// too.
	e.Remove("min_tokens", "min_completion_tokens")
}

// boundsAnswer reports whether oneToken sets this member, so that no connector can undo it.
func boundsAnswer(m Member) bool {
	switch m.Name {
	case "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "min_completion_tokens":
		return true
	}
	return false
}

// owned sets the members that do not belong to the client: the connector's, and the salt unless the connector has one.
// ParseRequest has removed the client's kv_transfer_params and ec_transfer_params.
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

// Member is a top-level member of a body.
type Member struct {
	Name  string
	Value []byte // raw JSON; nil removes the member
}
