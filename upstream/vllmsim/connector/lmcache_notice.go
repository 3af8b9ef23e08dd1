package connector

import (
	"encoding/binary"
	"strconv"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
)

// packed is an unfinished MessagePack document, in the form in which msgspec writes tagged structs: a map whose first key is "type".
type packed []byte

func (p packed) text(s string) packed {
	if len(s) < 32 {
		return append(append(p, 0xa0|byte(len(s))), s...)
	}
	if len(s) < 256 {
		return append(append(p, 0xd9, byte(len(s))), s...)
	}
	return append(binary.BigEndian.AppendUint16(append(p, 0xda), uint16(len(s))), s...)
}

func (p packed) pair(key, value string) packed { return p.text(key).text(value) }

func (p packed) small(key string, n int) packed { return append(p.text(key), byte(n&0x7f)) }

func (p packed) none(key string) packed { return append(p.text(key), 0xc0) }

// Notification returns the one frame by which a rank announces that the KV of a request has arrived. All ranks send the same frame, except
// with StoragePDStatus. Only the shape of that one is known: no release that was examined sends it.
func Notification(tag, id string, rank int, state string) []byte {
	if tag != config.TagStoragePDStatus {
		return packed{0x82}.pair("type", tag).pair("req_id", id)
	}
	return packed{0x8e}.pair("type", tag).pair("req_id", id).small("tp_rank", rank).pair("state", state).
		small("writer_epoch", 1).pair("namespace_identity", "sim").small("checkpoint_seq", 1).small("key_count", 1).
		pair("manifest_digest", strconv.Itoa(rank)).small("total_logical_bytes", 1).small("total_padded_bytes", 1).
		none("error_stage").none("error_text").none("ack_endpoint")
}

// NoNotifications returns frames that reach a proxy's port and announce nothing, although some of them name the request.
func NoNotifications(id string) [][]byte {
	return [][]byte{
		{},
		{0x07},
		{0xc1},
		{0x82, 0xa4, 't', 'y'},
		{0xdf, 0xff, 0xff, 0xff, 0xff},
		packed{0x82}.pair("type", "CancelNotif").pair("req_id", id),
		packed{0x82}.pair("type", "AllocRequest").pair("req_id", id),
		packed{0x82}.pair("type", config.TagProxyNotif).pair("req_id", id+"x"),
		packed{0x82}.pair("type", config.TagProxyNotif).pair("id", id),
		packed{0x82}.pair("type", config.TagProxyNotif).small("req_id", 1),
		[]byte(id),
	}
}

// proxyAddress returns the current address for notifications, "" for none.
func (l *lmcache) proxyAddress() string {
	c := &l.Engine.Live.Load().LMCache
	if c.ProxyPort == 0 {
		return ""
	}
	return engine.PeerAddress(c.ProxyHost, c.ProxyPort)
}
