// Package p2pnccl speaks to vLLM's P2pNcclConnector, which vLLM had until 2026-06-08 (#44854). There are no kv_transfer_params. Each
// leg's request id has the addresses of both engines: prefill pushes the KV of its prompt, under this id, to the decode address in the
// id, and decode takes the KV that has come under its own request id (p2p_nccl_connector.py, p2p_nccl_engine.py).
//
// A decode engine of this connector can't compute a prompt. Its worker waits for the KV of each request without a time limit and
// blocks all other requests meanwhile; a request id that names no prefill engine ends the engine (start_load_kv, recv_tensor). So
// decode gets a request only after prefill has answered, and prefill answers after it has pushed the KV ([upstream.Traits]).
//
// vLLM 0.14 and later adds random digits to request ids (#27987), so the two engines would file the KV under different ids. Both then
// need VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1 (#34415); a decode engine without it waits for ever. Carryover can't detect this.
package p2pnccl
