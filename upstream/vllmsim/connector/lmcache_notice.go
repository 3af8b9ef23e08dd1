package connector

import (
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
)

// packed returns a map in MessagePack, as msgspec writes tagged structs: its first key is "type".
func packed(members ...any) []byte {
	b := msgp.AppendMapHeader(nil, uint32(len(members)/2))
	for _, m := range members {
		if n, ok := m.(int); ok {
			m = uint(n) // in its shortest form
		}
		b, _ = msgp.AppendIntf(b, m) // the library knows the types of all members
	}
	return b
}

// Notification returns the frame by which a rank announces that the KV of a request has arrived. All ranks send the same frame, except with
// StoragePDStatus. Only the shape of the latter is known: no examined release sends it.
func Notification(tag, id string, rank int, state string) []byte {
	if tag != config.TagStoragePDStatus {
		return packed("type", tag, "req_id", id)
	}
	return packed("type", tag, "req_id", id, "tp_rank", rank, "state", state, "writer_epoch", 1, "namespace_identity", "sim", "checkpoint_seq", 1,
		"key_count", 1, "manifest_digest", strconv.Itoa(rank), "total_logical_bytes", 1, "total_padded_bytes", 1,
		"error_stage", nil, "error_text", nil, "ack_endpoint", nil)
}

// NoNotifications returns frames that reach a proxy's port and announce nothing, although some name the request.
func NoNotifications(id string) [][]byte {
	return [][]byte{
		{},
		{0x07},
		{0xc1},
		{0x82, 0xa4, 't', 'y'},
		{0xdf, 0xff, 0xff, 0xff, 0xff},
		packed("type", "CancelNotif", "req_id", id),
		packed("type", "AllocRequest", "req_id", id),
		packed("type", config.TagProxyNotif, "req_id", id+"x"),
		packed("type", config.TagProxyNotif, "id", id),
		packed("type", config.TagProxyNotif, "req_id", 1),
		[]byte(id),
	}
}

func (l *lmcache) proxyAddress() string {
	c := &l.Engine.Live.Load().LMCache
	if c.ProxyPort == 0 {
		return ""
	}
	return engine.PeerAddress("127.0.0.1", c.ProxyPort)
}
