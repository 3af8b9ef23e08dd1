package connector

import (
	"errors"
	"fmt"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// MaxParams bounds a kv_transfer_params object of an engine, in bytes: decode's request repeats it. 100 kB is normal for a long
// context.
const MaxParams = 1 << 20

var errTooLarge = errors.New("kv_transfer_params: larger than 1 MiB")

// ParseParams reads the kv_transfer_params of an engine's answer, any JSON object of at most MaxParams. It shares raw. Errors repeat
// nothing of raw.
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

// AppendMember adds a member to the text of a JSON object that has one already and is not ended. The name needs no escapes, and value
// is JSON.
func AppendMember(object []byte, name string, value []byte) []byte {
	object = append(append(append(object, `,"`...), name...), `":`...)
	return append(object, value...)
}

// IDsMember is where a chat leg has the ids to compute: in its kv_transfer_params (vLLM 0.28). An older engine ignores them there and
// renders the messages, as the other leg's does.
const IDsMember = "prompt_token_ids"

// Carry is a leg's kv_transfer_params, whose text is not ended, with the ids to compute, a JSON list: within the params of a chat
// (IDsMember), and as the prompt of a text completion.
func Carry(api upstream.API, params, ids []byte) []upstream.Member {
	if api == upstream.Text {
		return []upstream.Member{{Name: "kv_transfer_params", Value: append(params, '}')}, {Name: "prompt", Value: ids}}
	}
	return []upstream.Member{{Name: "kv_transfer_params", Value: append(AppendMember(params, IDsMember, ids), '}')}}
}
