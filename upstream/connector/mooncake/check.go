package mooncake

import (
	"github.com/tidwall/gjson"

	"carryover/upstream"
	"carryover/upstream/connector"
)

// check returns an error if decode must not use, or will not get, the KV of a prefill engine that has answered. If the answer repeats
// other ids, the KV belongs to another prompt. If the request did not end by its length, prefill has thrown the KV away, whatever the
// status of the answer (recordings 05 and 06).
func check(answer upstream.PrefillAnswer, ids []uint32) error {
	if err := connector.CheckIDs(answer, ids); err != nil {
		return err
	}
	if gjson.GetBytes(answer.Body, "choices.0.finish_reason").String() != "length" {
		return connector.ErrNotCapped
	}
	return nil
}
