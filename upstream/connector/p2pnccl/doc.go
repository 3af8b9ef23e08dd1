// Package p2pnccl speaks to vLLM's P2pNcclConnector, which vLLM had until 2026-06-08 (#44854). There are no kv_transfer_params: each
// leg's request id has the addresses of both engines, prefill pushes the KV of its prompt to the one that it reads there, under
// that id, and decode takes what has come under its own (p2p_nccl_connector.py, p2p_nccl_engine.py).
//
// A decode engine of it can't compute a prompt. Its worker waits for the KV of each request without any time limit and lets no
// other request go on meanwhile, and a request id that names no prefill engine ends it (start_load_kv, recv_tensor). So decode gets
// nothing before prefill has answered, which it does when it has pushed, and never anything else ([upstream.Traits]).
//
// vLLM 0.14 and later adds digits of its own to request ids (#27987), so that no two engines have KV under one id. Both need
// VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1 (#34415) then; a decode engine without it waits for ever. Nothing here can see that.
package p2pnccl
