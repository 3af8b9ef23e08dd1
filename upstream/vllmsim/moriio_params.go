package vllmsim

import "strconv"

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
func (m *moriio) answered(r *run, known *moriioRun) moriioParams {
	e := m.engine
	port := strconv.Itoa(e.sidePort - e.rank)
	return moriioParams{
		DoRemotePrefill: true, RemoteBlockIDs: r.blocks, RemoteEngineID: peerAddress(e.cfg.Host, e.sidePort-e.rank), RemoteHost: e.cfg.Host,
		RemoteHandshakePort: port, RemoteNotifyPort: port, RemoteDPRank: e.rank, RemoteDPSize: e.cfg.DPRanks, RemoteDPSizeLocal: e.cfg.DPRanks,
		TPSize: 1, TransferID: known.transfer,
	}
}
