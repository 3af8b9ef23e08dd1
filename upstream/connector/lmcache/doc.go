// Package lmcache speaks to prefill and decode instances as LMCache's P/D mode wants it (LMCacheConnectorV1, pd_backend.py and
// pd_backend_async.py of LMCache 0.5.6): prefill sends its KV to the receiver that disagg_spec names, tells the proxy by ZeroMQ when it has
// arrived, and answers with the first token (return_token_ids). Decode is told nothing: it finds the KV by the hashes of the ids that it is
// asked to compute, all but the last. So both legs carry ids, and decode's are those of the prompt and the first token.
//
// What the package keeps:
//   - No prefill leg without a complete disagg_spec, and none with ret_first_tok that may be aborted: both would end the prefill engine
//     (measured). (receiver.go, legs.go)
//   - The client gets one answer of one engine: decode's part has the id of prefill's, its usage counts the client's prompt, and chats that
//     decode answers as text completions look like chats. (chunk.go, whole.go, logprobs.go)
//   - Where an answer can't go on behind a token of another engine, decode gives it from the beginning. (way.go)
//   - All KV that is sent is taken by decode. LMCache's receiver frees a chunk when it is read and has no other end for it
//     (remove_after_retrieve in cache_engine.py), and a receiver that is full keeps prefill from answering at all. (legs.go, handover.go)
//
// What it can't do: several choices or prompts, beams and media go to decode alone, as do prompts that are truncated, asked for
// logprobs, or shorter than a chunk where decode begins by itself. Chats that are answered as text completions go by no parser of
// the engine's: a model that reasons or calls tools unasked wants Connector.ChatAtDecode. A chat that names no limit may use all of the
// context, whatever max_new_tokens of the model's generation_config.json says. Nothing is kept for a next turn: prefill reads its own
// prefix cache only.
//
// # Measured on LMCache 0.5.6
//
// A sender dies of a request without disagg_spec, so nothing but its legs, /tokenize and GETs goes to it: no probe of
// ours and no fallback. Nor is it asked for ret_first_tok, with which a cancelled request ends it; the first token is
// named by return_token_ids. A receiver keeps a chunk until it is read, and a full one stalls prefill. So decode's legs
// have a cache_salt that no other leg has, with which they find nothing in vLLM's own prefix cache and read all that was
// sent. LMCache registers a chunk before its bytes have landed, and a decode leg that starts too early answers nonsense.
// So decode waits for the notice (package kvready), and the legs of an attempt carry a tag that is part of LMCache's
// keys: no other attempt finds what was sent for this one. A turn whose KV is not announced within the hand-over budget
// ends with an error, or decode computes it without the tag (setting lmcache.unready). A pair that announces nothing
// twice in a row is left alone for a while: a sender never announces anything for a decode that was restarted.
package lmcache
