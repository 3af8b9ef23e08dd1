package connector

import (
	"errors"
	"fmt"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// MaxParams bounds an engine's kv_transfer_params in bytes, because decode's request repeats them. 100 kB is normal
// for a long context.
const MaxParams = 1 << 20

var errTooLarge = errors.New("kv_transfer_params: larger than 1 MiB")

// ParseParams parses the kv_transfer_params of an engine's answer: any JSON object of at most MaxParams bytes. The
// result shares raw. Errors quote nothing of raw.
func ParseParams(raw []byte) (rawjson.Object, error) {
	if len(raw) > MaxParams {
		return rawjson.Object{}, errTooLarge
	}
	params, err := rawjson.ParseObject(raw)
	if err != nil {
		return params, fmt.Errorf("kv_transfer_params: %w", err)
	}
	return params, nil
}

// AppendMember appends a member to the text of a JSON object that has a member already and is not closed. The name
// needs no escapes, and value is JSON.
func AppendMember(object []byte, name string, value []byte) []byte {
	object = append(append(append(object, `,"`...), name...), `":`...)
	return append(object, value...)
}

// IDsMember is the member of kv_transfer_params in which a chat leg carries the ids to compute (vLLM 0.28). An older
// engine ignores it and renders the messages, as the engine of the other leg does.
const IDsMember = "prompt_token_ids"

// Carry returns the members of a leg with the ids to compute, a JSON list. params is the text of its
// kv_transfer_params, not closed. A chat carries the ids in its params (IDsMember), a text completion as its prompt.
func Carry(api upstream.API, params, ids []byte) []upstream.Member {
	if api == upstream.Text {
		return []upstream.Member{{Name: "kv_transfer_params", Value: append(params, '}')}, {Name: "prompt", Value: ids}}
	}
	return []upstream.Member{{Name: "kv_transfer_params", Value: append(AppendMember(params, IDsMember, ids), '}')}}
}
