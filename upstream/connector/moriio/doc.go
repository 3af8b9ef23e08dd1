// Package moriio speaks to vLLM's MoRIIOConnector (moriio_connector.py, moriio_common.py; 2026-01 to 2026-08, read and not run: it needs
// ROCm). Both legs have a request id that names both engines, and kv_transfer_params with a transfer id of the attempt.
//
//	mode   legs               KV                                             decode is told
//	WRITE  both at once       prefill writes it into blocks that decode      nulls
//	                          tells it, and decode waits for that
//	READ   prefill, decode    decode reads the blocks that prefill's         what prefill has answered (answer.go)
//	                          answer names
//
// KV is moved by position, and nothing compares the tokens that it is of. So both legs compute the same ids, which prefill's answer
// has to repeat (answer.go). Prefill keeps KV only of a request that ends by its length; its leg asks for nothing else to end it.
//
// A decode engine of it can't compute a prompt: it counts on KV of others for each request that it gets. Without
// kv_transfer_params it waits for ever in WRITE mode, and in READ mode it answers from memory that was never written
// (get_num_new_matched_tokens, update_state_after_alloc). So it gets nothing without a prefill leg ([upstream.Traits]).
package moriio
