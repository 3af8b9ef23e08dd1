// Package lmcache speaks to prefill and decode instances in LMCache's P/D mode (LMCacheConnectorV1, pd_backend.py and pd_backend_async.py
// of LMCache 0.5.6). Prefill sends its KV to the receiver that disagg_spec names, notifies the proxy by ZeroMQ when the KV has arrived,
// and answers with the first token (return_token_ids). Decode gets no notification: it finds the KV by the hashes of its prompt's ids, all
// except the last. So both legs carry ids, and decode's ids are the prompt and the first token.
//
// What the package guarantees:
//   - Every prefill leg has a complete disagg_spec, and none asks for ret_first_tok, because a client may abort the leg: either would end
//     the prefill engine (measured). (connector.go, legs.go)
//   - The client's answer looks like one engine's: decode's part has the id of prefill's answer, its usage counts the client's
//     prompt, and chats that decode answers as text completions look like chats. (continuation.go, logprobs.go)
//   - If an answer can't continue after a token of another engine, decode gives the answer from its beginning. (way.go)
//   - Decode takes all KV that is sent. LMCache's receiver frees a chunk only when the chunk is read (remove_after_retrieve in
//     cache_engine.py), and while a receiver is full, prefill does not answer at all. (legs.go, handover.go)
//
// Limits: requests with several choices or prompts, beams or media go to decode alone. So do requests of one token, prompts that are
// truncated or that need prompt logprobs, and prompts shorter than a chunk where decode gives the answer from its beginning. A chat that
// is answered as a text completion passes no parser of the engine: a model that reasons or calls tools unasked needs another connector. A
// chat without a limit may use all of the context, whatever max_new_tokens of the model's generation_config.json says. Nothing is kept for
// a next turn: prefill reads its own prefix cache only.
//
// # Measured on LMCache 0.5.6
//
// A sender dies of a request without disagg_spec, so Carryover sends it only prefill legs, /tokenize and GETs: no probe and no fallback.
//
// LMCache registers a chunk before its bytes have landed, and a decode leg that starts too early answers nonsense. So decode waits for the
// notifications (package kvready), and only the legs of one attempt find its chunks, by a tag in LMCache's keys. KV that is not announced
// in time is a failure of prefill, and a leg without an answer takes what still arrives.
package lmcache
