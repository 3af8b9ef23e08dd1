package connector

import (
	"errors"
	"fmt"

	"carryover/sse/rawjson"
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
