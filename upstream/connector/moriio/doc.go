// Package moriio speaks to vLLM's MoRIIOConnector (moriio_connector.py, moriio_common.py; 2026-01 to 2026-08, read and not run: it needs
// ROCm). Both legs have a request id that names both engines, and kv_transfer_params with a transfer id of the attempt.
//
//	mode   legs               KV                                             decode is told
//	WRITE  both at once       prefill writes it into blocks that decode      nulls
//	                          tells it, and decode waits for that
//	READ   prefill, decode    decode reads the blocks that prefill's         what prefill has answered (answer.go)
//	                          answer names
//
// KV is moved by position, and no engine compares the tokens. So both legs compute the same ids, and prefill's answer has to
// repeat them (answer.go). Prefill keeps the KV only of a request that ends by its length; its leg has no other way to end.
//
// A decode engine of this connector can't compute a prompt: it relies on KV of a prefill engine for each request. Without
// kv_transfer_params it waits for ever in WRITE mode, and in READ mode it answers from memory that was never written
// (get_num_new_matched_tokens, update_state_after_alloc). So it gets no request without a prefill leg ([upstream.Traits]).
package moriio
