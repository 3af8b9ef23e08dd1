package moriio

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"carryover/upstream"
)

// addressedID returns the X-Request-Id that both legs carry for MoRI-IO, whose engines find each other by it. It
// consists of the addresses that the two instances have announced and of 32 hexadecimal digits: the attempt's id if it has this
// form, else digits of its hash (vLLM moriio_common.py, get_peer_zmq_from_request_id).
func addressedID(t upstream.Transfer) string {
	return "___prefill_addr_" + t.Prefill.Announced.Address + "___decode_addr_" + t.Decode.Announced.Address + "_" + digits32(t.RequestID)
}

func digits32(id string) string {
	if len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// renamed replaces the request id in an answer by an id that does not show the addresses of engines: an engine derives the id of
// its answer from the request id. request is a result of addressedID, so it needs no escapes in JSON, and no other text contains it.
type renamed struct{ request, shown string }

// Event returns the event with the id replaced.
func (r renamed) Event(data []byte) []byte {
	return bytes.ReplaceAll(data, []byte(r.request), []byte(r.shown))
}

// Body returns the answer with the id replaced.
func (r renamed) Body(body []byte) ([]byte, error) { return r.Event(body), nil }
