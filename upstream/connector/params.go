package connector

import (
	"errors"
	"fmt"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// MaxParams is the greatest size of an engine's kv_transfer_params in bytes, bounded because decode's request repeats them. 100 kB
// is normal for a long context.
const MaxParams = 1 << 20

var errTooLarge = errors.New("kv_transfer_params: larger than 1 MiB")

// ParseParams parses the kv_transfer_params of an engine's answer: any JSON object of at most MaxParams bytes. The
// result shares the memory of raw. Errors quote nothing of raw.
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

// AppendMember appends a member to the text of a JSON object. The text has at least one member and lacks the closing brace. The name
// must need no escapes, and value is JSON.
func AppendMember(object []byte, name string, value []byte) []byte {
	object = append(append(append(object, `,"`...), name...), `":`...)
	return append(object, value...)
}

// IDsMember is the member of kv_transfer_params in which a chat leg carries the ids to compute (vLLM 0.28). An older
// engine ignores it and renders the messages, as the other leg's engine does.
const IDsMember = "prompt_token_ids"

// Carry returns the members of a leg that carries ids to compute. ids is a JSON list; params is the text of the leg's
// kv_transfer_params without the closing brace. A chat carries the ids in its params (IDsMember), a text completion as its prompt.
func Carry(api body.API, params, ids []byte) []body.Member {
	if api == body.Text {
		return []body.Member{{Name: "kv_transfer_params", Value: append(params, '}')}, {Name: "prompt", Value: ids}}
	}
	return []body.Member{{Name: "kv_transfer_params", Value: append(AppendMember(params, IDsMember, ids), '}')}}
}
