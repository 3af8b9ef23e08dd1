package connector

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"carryover/upstream"
)

// AddressedID returns the X-Request-Id of both legs by which engines of P2P-NCCL and MoRI-IO find each other: the
// addresses that the two instances have announced, and 32 hexadecimal digits, which are the attempt's id if that has
// this form (vLLM p2p_nccl_connector.py, parse_request_id; moriio_common.py, get_peer_zmq_from_request_id).
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

// Renamed replaces the id of an answer by one without the addresses of engines: each engine derives the id of an
// answer from its request's. AddressedID has made the request id, so it needs no escapes in JSON, and no other text
// contains it.
type Renamed struct{ Request, Shown string }

// Event returns the event with the id replaced.
func (r Renamed) Event(data []byte) []byte {
	return bytes.ReplaceAll(data, []byte(r.Request), []byte(r.Shown))
}

// Body returns the answer with the id replaced.
func (r Renamed) Body(body []byte) ([]byte, error) { return r.Event(body), nil }
