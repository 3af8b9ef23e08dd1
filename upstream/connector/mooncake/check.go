package mooncake

import (
	"github.com/tidwall/gjson"

	"carryover/upstream"
	"carryover/upstream/connector"
)

// check says why decode must not, or need not, wait for the KV of a prefill that has answered: it is of another prompt if the answer
// repeats other ids, and it is thrown away unless the request ended by its length, whatever the status (recordings 05 and 06).
func check(answer upstream.PrefillAnswer, ids []uint32) error {
	if err := connector.CheckIDs(answer, ids); err != nil {
		return err
	}
	if gjson.GetBytes(answer.Body, "choices.0.finish_reason").String() != "length" {
		return connector.ErrNotCapped
	}
	return nil
}
