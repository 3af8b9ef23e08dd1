package connector

import (
	"errors"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// Why there is no KV for decode although prefill has answered 200.
var (
	ErrNotCapped = errors.New("prefill did not end by its length, so that it has thrown the KV away")
	ErrOtherIDs  = errors.New("prefill did not compute the ids that it was sent")
)

// Capped are the members of a prefill leg that have it end by its length and by nothing else: engines of Mooncake and MoRI-IO keep the
// KV of requests that are FINISHED_LENGTH_CAPPED only (mooncake_connector.py and moriio_connector.py, request_finished). The ids that
// it computed are for CheckIDs.
func Capped() []upstream.Member {
	return []upstream.Member{
		{Name: "stop_token_ids"}, {Name: "stop"},
		{Name: "ignore_eos", Value: []byte("true")},
		{Name: "return_token_ids", Value: []byte("true")},
	}
}

// CheckIDs returns ErrOtherIDs if prefill's answer repeats other ids than it was sent: decode takes blocks by position and would have
// those of another prompt. Engines that repeat none are too old to be told any.
func CheckIDs(answer upstream.PrefillAnswer, ids []uint32) error {
	if answer.PromptIDs != nil && !rawjson.EqualIDs(answer.PromptIDs, ids) {
		return ErrOtherIDs
	}
	return nil
}
