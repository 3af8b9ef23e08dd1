// Package mooncake speaks to vLLM's MooncakeConnector (mooncake_connector.py, 0.32): both legs go out at once, name one transfer_id,
// and decode waits until prefill has pushed the KV of its prompt. No answer carries kv_transfer_params, and nothing is left for a next
// turn: with both flags set an engine keeps nothing (measured), so that turns gain from the instances' own prefix caches alone.
//
// Decode takes blocks by position and compares nothing: a shorter prompt than prefill's gives a silently wrong answer (measured). Both
// legs therefore compute the same ids (connector.go), which prefill's answer has to repeat (check.go).
//
// Decode names the engine that it wants KV of by an id that each prefill incarnation draws anew, and that a server beside it tells
// (query.go). It waits for KV that never comes for VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT, 480 s by default, and answers 500 then. So
// the KV of each prefill leg must be of use: an engine that ends a request by a stop token drops it, and check.go says so.
package mooncake
