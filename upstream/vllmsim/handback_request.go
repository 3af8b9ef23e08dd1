package vllmsim

import "encoding/json"

// HandsBack reports whether a request is a hand-back. vLLM marks none, so the rule describes requests that no turn sends: a text completion
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

// HandsBack applies apiRequest.HandsBack to a body, which need not be valid.
func handsBack(path string, body []byte) bool {
	r, err := parseBody(body)
	return err == nil && r.handsBack(path)
}
