package request

import (
	"bytes"
	"encoding/json"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/wire"
)

func readParams(raw json.RawMessage) (*engine.ParamsIn, error) {
	p, err := engine.ParseParams(raw)
	if err != nil {
		return nil, &wire.Error{Status: 400, Kind: wire.KindInvalidBody, Param: "body.kv_transfer_params",
			Message: "1 validation error:\n  {'type': 'dict_type', 'loc': 'body.kv_transfer_params', 'msg': 'Input should be a valid dictionary'}"}
	}
	return p, nil
}

// PromptTokenIDs returns the ids to use instead of rendering; ok is false without any.
func PromptTokenIDs(p *engine.ParamsIn) (ids []int32, ok bool, err error) {
	if p == nil {
		return nil, false, nil
	}
	raw, ok := p.Members["prompt_token_ids"]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return nil, false, nil
	}
	bad := &wire.Error{Status: 400, Kind: "BadRequestError", Param: "kv_transfer_params.prompt_token_ids",
		Message: "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers. (parameter=kv_transfer_params.prompt_token_ids)"}
	if json.Unmarshal(raw, &ids) != nil || len(ids) == 0 || bytes.Contains(raw, []byte("null")) {
		return nil, false, bad
	}
	for _, id := range ids {
		if id < 0 {
			return nil, false, bad
		}
	}
	return ids, true, nil
}

// CarriesTicket reports whether a request is a prefill leg with blocks to be read.
func (r *Completion) CarriesTicket() bool {
	tokens, _ := r.Params.Integer("remote_num_tokens")
	return tokens > 0 && r.Params.Prefills() && r.Params.Truthy("remote_block_ids")
}

// HandsBack reports whether a request is a hand-back. vLLM marks none, so the rule describes requests that no turn sends: a text completion
// of one list of ids, in a prefill leg with blocks to be read (remote_num_tokens above 0). It streams, or it ignores the end of sequence and
// has exactly remote_num_tokens ids. A turn's prefill leg answers in one piece; its prompt may be as long as what it reads of a ticket.
func (r *Completion) HandsBack(path string) bool {
	tokens, _ := r.Params.Integer("remote_num_tokens")
	if path != wire.PathCompletions || !r.CarriesTicket() {
		return false
	}
	var ids []int32
	if json.Unmarshal(r.Prompt, &ids) != nil || len(ids) == 0 {
		return false
	}
	return r.Stream || r.IgnoreEOS && len(ids) == tokens
}

// Releases reports whether a request only frees blocks of decode: it reads none of them, and its client disconnects at the first event.
func (r *Completion) Releases(path string) bool {
	tokens, ok := r.Params.Integer("remote_num_tokens")
	return path == wire.PathCompletions && r.Stream && ok && tokens == 0 && r.Params.Prefills() && r.Params.Truthy("remote_block_ids")
}
