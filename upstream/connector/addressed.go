package connector

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"carryover/upstream"
)

// AddressedID is the X-Request-Id by which engines of P2P-NCCL and MoRI-IO find each other, of both legs: what the two instances
// have announced as their addresses, and 32 hexadecimal digits, which are those of the attempt's id if that is as long (vLLM
// p2p_nccl_connector.py, parse_request_id; moriio_common.py, get_peer_zmq_from_request_id).
func AddressedID(t upstream.Transfer) string {
	return "___prefill_addr_" + t.Prefill.Announced.Address + "___decode_addr_" + t.Decode.Announced.Address + "_" + digits32(t.RequestID)
}

func digits32(id string) string {
	if len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// Renamed makes an answer's id one without the addresses of engines: each engine makes the id of an answer of its request's.
// The request id has been made by AddressedID, so that it needs no escapes in JSON and stands for nothing else.
type Renamed struct{ Request, Shown string }

// Event returns the event with the other id.
func (r Renamed) Event(data []byte) []byte {
	return bytes.ReplaceAll(data, []byte(r.Request), []byte(r.Shown))
}

// Body returns the answer with the other id.
func (r Renamed) Body(body []byte) ([]byte, error) { return r.Event(body), nil }
