// Package vllmsim simulates vLLM instances well enough to catch a proxy that hands KV over wrongly. It is a test oracle
// and the engine of demos: it talks HTTP like vLLM 0.32 or 0.33 with NixlConnector (config/release.go), answers byte for byte like
// the exchanges in testdata/exchanges except for what differs by nature, and knows what the KV in every block is.
//
// # Model
//
// KV is modelled as one number per token slot, a function of the token and of the KV before it that is actually
// present (kv/content.go). Blocks have ids; freed ids are handed out again and their content lasts until then (kv/blocks.go).
// A finished request that came with kv_transfer_params leaves its blocks pinned, prefill's under a lease that
// heartbeats prolong, decode's under a fixed TTL (engine/pins.go). Another instance reads them over a real loopback
// connection (engine/transfer.go), by position, the last blocks of the list, comparing nothing but the engine id and the
// expiry time, as vLLM does (engine/admission.go), once both engines have the same version and model path, as NIXL's
// handshake asks (engine/transfer.go). One completed read, or a notification without a read, frees them.
//
// The reader then compares what it got with the KV of its own prompt. A difference is counted as CorruptReads, and the
// answer is a different one, because what is sampled is a function of the KV that is present (engine/reply.go). Wrong blocks
// are filed in the prefix cache like right ones; requests that hit them later are Poisoned and wrong too. Wrong KV that
// prefill has read counts once more on the decode instance that reads it from there.
//
// A hand-back is a prefill leg that no turn waits for and that brings a turn's KV back to prefill (engine/handback.go tells how it is recognised).
// If its client aborts, it pins nothing, and what it has read and computed stays in the prefix cache, in whole blocks. If it ends by
// itself, its blocks stay pinned for a lease. For these legs the owner of the blocks compares what vLLM does not: the numbers of ids, tokens
// and blocks with those that it has pinned (UnevenHandBacks). For every read it also compares the reader's cache_salt with that of the
// request that made the KV (OtherSalts); if the reader's salt has a ~, only the part behind it counts. Wrong ids give wrong KV, as always.
// Fault.HandBacks limits a fault to these legs, and HoldHandBacks stops them.
//
// Text and tokens can disagree, as with real models. The tokenizer is a byte-level BPE (package bpe), and Config chooses
// whether the model samples the ids that the tokenizer would have written, and whether the chat template repeats what was
// sampled (package template). The last user message can order an answer: SAY, CALL, THINK (engine/reply.go).
//
// An image in a prompt is a run of equal placeholder ids, equally many for every image, and its KV depends on its bytes
// (template/media.go). A text that spells the placeholders has the same ids but other KV, so a reader with equal ids still detects
// the difference. Block hashes differ too, and with them the prefix cache; vLLM uses mm_hash for that.
//
// Other connectors (Config.Connector) move KV in other ways. With LMCache a prefill instance pushes the KV of each prompt to a decode
// instance and announces it over ZeroMQ (connector/lmcache.go). Decode finds the KV by a hash of the tokens as soon as space for it is allocated:
// a request that comes before its KV reads garbage, which is counted as CorruptReads like any wrong KV, and as EarlyReads. With
// shared storage both roles save and load chunks as files in a folder (connector/storage.go). With Mooncake (connector/mooncake.go) both legs name a transfer,
// a server beside prefill reports its engine ids, and decode waits for prefill to push; nothing is compared there either.
// A request of the Messages API becomes a chat request, and the answer is translated back (api/messages.go), so every count above includes it.
// Stock streams of this API carry no params: Config.MessageParams is a plug-in that adds them. Config.MergeSystem is a template that takes
// a system message only in front. Errors have vLLM's statuses, but most messages of body validation are not vLLM's. Thinking changes
// nothing but reasoning_effort.
//
// The Responses API works in the same way (api/responses.go). Its params need no plug-in, since the event that ends a stream has the whole
// response. There is no store: previous_response_id is never known, and background is refused. Structured output and logprobs have no
// effect. Neither has the order of a call's keys, by which a real template may render this API's history and chat's to different ids.
//
// Load has effects. max_num_seqs and the blocks limit how many requests run, the others wait their turn, and prompts are computed
// one after the other at the engine's speed (engine/schedule.go). /metrics reports it for each data-parallel rank (ops/metrics.go).
//
// Each engine publishes the changes of its prefix cache as KV events, byte for byte as the recordings in
// testdata/exchanges/kv-events, or in the encoding of older engines, and replays them (package kvevents). ClearBlocks clears the cache
// although tickets exist, which vLLM does not do (engine/memory.go).
//
// # Using it
//
// Start(Config) listens on free ports; Close ends every goroutine. Tests look at Stats, Requests and Lone, make time
// pass with Advance, make things fail with SetFault, Switch and Restart, and hold legs with HoldHandBacks. Processes do the same
// at /_sim/ (control.go), except for holding. Every suite that drives the proxy ends by asserting that nothing was read wrongly, twice
// or under another salt, and that the scenario explains all pins that are left.
//
// # Limits
//
// Every sampling is greedy; temperature and seed change nothing. Decoding has the same speed however many requests run.
// Structured output, speculative decoding, media of different sizes, tensor and pipeline parallelism, and several KV cache
// groups are not modelled. A decode leg whose params lack a required key waits for ever, and one whose block list is malformed or
// too short ends the engine; both are derived from vLLM's source, not measured.
//
// A stuck LMCache sender stays stuck until it is restarted; only its silence was measured. A sender whose receiver has no space
// goes on answering, however much KV waits to be sent.
//
// The package imports nothing of this module, so that it cannot share a mistake with what it tests.
package vllmsim
