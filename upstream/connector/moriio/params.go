package moriio

import (
	"strconv"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/connector"
)

// params returns kv_transfer_params without blocks: for prefill's leg in both modes, and for decode's leg in WRITE mode. peer is the
// address of the other engine, of its instance.
//
// The host and the ports of the peer are in the request id too. Engines of 2026-01 to 2026-04 read them only here, and newer engines
// read both places (moriio_common.py, add_new_req). remote_port is another name of remote_handshake_port.
func (a *attempt) params(prefill bool, peer address, of *upstream.Instance) []byte {
	b := []byte(`{"do_remote_decode":` + strconv.FormatBool(prefill) + `,"do_remote_prefill":` + strconv.FormatBool(!prefill) +
		`,"remote_engine_id":null,"remote_block_ids":null`)
	b = connector.AppendMember(b, "transfer_id", rawjson.Quote(a.transfer))
	b = connector.AppendMember(b, "remote_host", rawjson.Quote(peer.host))
	b = number(b, "remote_port", peer.handshake)
	b = number(b, "remote_handshake_port", peer.handshake)
	b = number(b, "remote_notify_port", peer.notify)
	b = number(b, "remote_dp_size", max(of.Announced.DPSize, 1))
	b = number(b, "remote_tp_size", max(of.Announced.TPSize, 1))
	if !prefill && a.rank >= 0 {
		b = number(b, "remote_dp_rank", a.rank)
	}
	if a.Request.API() == body.Chat {
		b = connector.AppendMember(b, connector.IDsMember, a.ids)
	}
	return append(b, '}')
}

func number(object []byte, name string, n int) []byte {
	return connector.AppendMember(object, name, strconv.AppendInt(nil, int64(n), 10))
}
