package connector

import (
	"strconv"

	"carryover/upstream/vllmsim/engine"
)

// moriioParams is a prefill engine's kv_transfer_params in an answer (request_finished), in vLLM's key order.
type moriioParams struct {
	DoRemotePrefill     bool    `json:"do_remote_prefill"`
	DoRemoteDecode      bool    `json:"do_remote_decode"`
	RemoteBlockIDs      []int32 `json:"remote_block_ids"`
	RemoteEngineID      string  `json:"remote_engine_id"`
	RemoteHost          string  `json:"remote_host"`
	RemoteHandshakePort string  `json:"remote_handshake_port"` // as in the configuration, where it is text by default
	RemoteNotifyPort    string  `json:"remote_notify_port"`
	RemoteDPRank        int     `json:"remote_dp_rank"`
	RemoteDPSize        int     `json:"remote_dp_size"`
	RemoteDPSizeLocal   int     `json:"remote_dp_size_local"`
	TPSize              int     `json:"tp_size"`
	TransferID          string  `json:"transfer_id"`
}

// answered returns prefill's params for KV that it keeps. The ports are those of rank 0.
func (m *moriio) answered(r *engine.Run, known *moriioRun) moriioParams {
	e := m.Engine
	port := strconv.Itoa(e.SidePort - e.Rank)
	return moriioParams{
		DoRemotePrefill: true, RemoteBlockIDs: r.Blocks, RemoteEngineID: engine.PeerAddress(e.Cfg.Host, e.SidePort-e.Rank), RemoteHost: e.Cfg.Host,
		RemoteHandshakePort: port, RemoteNotifyPort: port, RemoteDPRank: e.Rank, RemoteDPSize: e.Cfg.DPRanks, RemoteDPSizeLocal: e.Cfg.DPRanks,
		TPSize: 1, TransferID: known.transfer,
	}
}
