package connector

import (
	"errors"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Why decode gets no KV, or the wrong KV, although prefill has answered 200.
var (
	ErrNotCapped = errors.New("prefill did not end by its length, so that it has thrown the KV away")
	ErrOtherIDs  = errors.New("prefill did not compute the ids that it was sent")
)

// Capped returns the members that make a prefill leg end by its length only: engines of Mooncake keep only the KV of
// requests that end as FINISHED_LENGTH_CAPPED (mooncake_connector.py, request_finished). They also ask for the computed ids, for CheckIDs.
func Capped() []body.Member {
	return []body.Member{
		{Name: "stop_token_ids"}, {Name: "stop"},
		{Name: "ignore_eos", Value: []byte("true")},
		{Name: "return_token_ids", Value: []byte("true")},
	}
}

// CheckIDs returns ErrOtherIDs if the ids in prefill's answer differ from the ids that prefill was sent: decode takes blocks by
// position and would get the blocks of another prompt. An engine that answers without ids is too old to take ids, and renders the
// prompt as decode's engine does.
func CheckIDs(answer upstream.PrefillAnswer, ids []uint32) error {
	if answer.PromptIDs != nil && !rawjson.EqualIDs(answer.PromptIDs, ids) {
		return ErrOtherIDs
	}
	return nil
}
