// Package mooncake speaks to vLLM's MooncakeConnector (mooncake_connector.py, 0.32). Both legs are sent at once and carry the same
// transfer_id, and decode waits until prefill has pushed the KV of its prompt. No answer carries kv_transfer_params, and nothing is left
// for a next turn: with both flags set an engine keeps nothing (measured). So later turns gain only from the instances' prefix caches.
//
// Decode takes blocks by position and compares nothing: a shorter prompt than prefill's gives a silently wrong answer (measured). Both
// legs therefore compute the same ids (connector.go), and prefill's answer has to repeat them (check).
//
// Decode's leg names the prefill engine by an id that each incarnation of prefill draws anew; each attempt asks prefill's bootstrap
// server for it (query.go). If the KV never comes, decode waits for VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT, 480 s by default, and then answers 500. So
// each prefill leg must end by its length: an engine that ends a request by a stop token drops the KV, and check detects that.
package mooncake
