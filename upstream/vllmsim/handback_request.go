package vllmsim

import (
	"bytes"
	"encoding/json"

	"carryover/upstream/vllmsim/engine"
)

// readParams parses the kv_transfer_params of a request.
func readParams(raw json.RawMessage) (*engine.ParamsIn, error) {
	p, err := engine.ParseParams(raw)
	if err != nil {
		return nil, &apiError{status: 400, kind: kindInvalidBody, param: "body.kv_transfer_params",
			message: "1 validation error:\n  {'type': 'dict_type', 'loc': 'body.kv_transfer_params', 'msg': 'Input should be a valid dictionary'}"}
	}
	return p, nil
}

// promptTokenIDs returns the ids to use instead of rendering; ok is false when there are none.
func promptTokenIDs(p *engine.ParamsIn) (ids []int32, ok bool, err error) {
	if p == nil {
		return nil, false, nil
	}
	raw, ok := p.Members["prompt_token_ids"]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return nil, false, nil
	}
	bad := &apiError{status: 400, kind: "BadRequestError", param: "kv_transfer_params.prompt_token_ids",
		message: "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers. (parameter=kv_transfer_params.prompt_token_ids)"}
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

// handsBack reports whether a request is a hand-back. vLLM marks none, so the rule describes requests that no turn sends: a text completion
// of one list of ids, with blocks to be read in a prefill leg (remote_num_tokens above 0), that streams or has exactly remote_num_tokens
// ids. A turn's prefill leg answers in one piece, and its prompt is longer than its ticket.
func (r *apiRequest) handsBack(path string) bool {
	tokens, _ := r.params.Integer("remote_num_tokens")
	if path != pathCompletions || tokens <= 0 || !r.params.Prefills() || !r.params.Truthy("remote_block_ids") {
		return false
	}
	var ids []int32
	if json.Unmarshal(r.Prompt, &ids) != nil || len(ids) == 0 {
		return false
	}
	return r.Stream || len(ids) == tokens
}

// releases reports whether a request only makes decode free blocks: nothing of them is read, and its client disconnects at the first
// event.
func (r *apiRequest) releases(path string) bool {
	tokens, ok := r.params.Integer("remote_num_tokens")
	return path == pathCompletions && r.Stream && ok && tokens == 0 && r.params.Prefills() && r.params.Truthy("remote_block_ids")
}

// handsBack applies apiRequest.handsBack to a body, which need not be valid.
func handsBack(path string, body []byte) bool {
	r, err := parseBody(body)
	return err == nil && r.handsBack(path)
}
