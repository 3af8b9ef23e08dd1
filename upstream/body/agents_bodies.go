package body

import (
	"slices"

	"carryover/sse/rawjson"
)

// agentPrefillBody returns the body of a prefill leg for Messages or Responses. With ids the leg is a text completion
// that takes only model, salt and priority from the request, so that one path and one id echo serve both APIs. The
// render endpoint has by then refused what the request's own endpoint would refuse.
func (r *Request) agentPrefillBody(e PrefillEdit) rawjson.Pieces {
	if e.PromptIDs != nil {
		return r.textBody(e)
	}
	changes := make(rawjson.Edits, 0, 8)
	r.agentOneToken(&changes)
	// Stops shape only the discarded answer. A thinking budget stays: it shapes the prompt, and vLLM does not compare
	// it with the limit of a prefill leg.
	changes.Remove("stop", "stop_sequences", "stop_token_ids")
	r.ownResponse(&changes, e.AnswerID, e.ReturnTokenIDs)
	owned(&changes, e.Members, e.CacheSalt)
	return r.body.Splice(changes)
}

// textBody returns a text completion of one token with the ids of a prompt.
func (r *Request) textBody(e PrefillEdit) rawjson.Pieces {
	body, err := rawjson.ParseObject([]byte(`{"max_tokens":1,"stream":false}`))
	if err != nil { // never
		return nil
	}
	changes := make(rawjson.Edits, 0, 8)
	for _, name := range [...]string{"model", "priority", "cache_salt"} {
		if raw := r.body.Get(name); !rawjson.IsNull(raw) && (name != "priority" || r.api == Responses) { // which Messages ignores
			changes.Set(name, raw)
		}
	}
	changes.Set("prompt", e.PromptIDs)
	if e.ReturnTokenIDs {
		changes.SetWord("return_token_ids", "true")
	}
	owned(&changes, e.Members, e.CacheSalt)
	return body.Splice(changes)
}

// agentDecodeBody returns the body of a decode leg for Messages or Responses. The ids of its prompt are among
// e.Members.
func (r *Request) agentDecodeBody(e DecodeEdit) rawjson.Pieces {
	changes := make(rawjson.Edits, 0, 8)
	members := e.Members
	switch {
	case e.OneToken:
		r.agentOneToken(&changes)
		members = slices.DeleteFunc(slices.Clone(members), boundsAnswer)
	case e.Whole:
		changes.SetWord("stream", "false")
	}
	r.ownResponse(&changes, e.AnswerID, e.ReturnTokenIDs)
	owned(&changes, members, e.CacheSalt)
	return r.body.Splice(changes)
}

// agentOneToken makes a leg generate one token and answer in one piece.
func (r *Request) agentOneToken(e *rawjson.Edits) {
	e.SetWord("stream", "false")
	e.Remove("stream_options", "min_tokens")
	if r.api == Responses {
		e.SetWord("max_output_tokens", "1")
	} else {
		e.SetWord("max_tokens", "1")
	}
}

// ownResponse sets the members of a Responses leg that are ours whatever the client asked for: the id, which
// identifies the answer; store, so that the engine stores nothing; and with ids the request for token ids.
func (r *Request) ownResponse(e *rawjson.Edits, id string, ids bool) {
	if r.api != Responses {
		return
	}
	if id != "" {
		e.Set("request_id", rawjson.Quote(id))
	}
	e.SetWord("store", "false")
	if ids {
		e.SetWord(responseMessages, "true")
	}
}
