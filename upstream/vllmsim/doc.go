// Package vllmsim simulates vLLM instances well enough to catch a proxy that hands KV over wrongly. It is a test oracle and the engine of
// demos. It talks HTTP like vLLM 0.32 or 0.33 with NixlConnector (config/release.go). Its answers match testdata/exchanges byte for byte,
// except for what differs by nature.
//
// # Model
//
// The KV of a token slot is one number: a function of the token and of the KV that is actually present before it (kv/content.go). A freed
// block keeps its content until its id is handed out again (kv/blocks.go). A finished request that came with kv_transfer_params leaves its
// blocks pinned (engine/pins.go): prefill's under a lease that heartbeats prolong, decode's under a fixed TTL. Another instance reads them
// over a loopback connection, after a handshake like NIXL's, which asks for the same version and model path (engine/transfer.go). As in vLLM,
// a read takes the last blocks of the list by position and compares only the engine id and the expiry time (engine/admission.go). One
// completed read, or a notification without a read, frees the blocks.
//
// The reader compares what it got with the KV of its own prompt. A difference counts as CorruptReads and changes the answer, because the
// model samples from the KV that is present (engine/reply.go). Wrong blocks enter the prefix cache like right ones. Later requests that hit
// them count as Poisoned, and their answers are wrong too. If decode reads wrong KV from prefill, it counts once more there.
//
// A hand-back is a prefill leg that brings a turn's KV back to prefill; no turn waits for it (engine/handback.go). The owner of the blocks
// makes two comparisons that vLLM does not make. The numbers of ids, tokens and blocks of a hand-back must equal its pin's (UnevenHandBacks).
// For every read, the reader must have the cache_salt of the request that made the KV (OtherSalts). Fault.HandBacks limits a fault to
// hand-backs, and HoldHandBacks stops them.
//
// Text and tokens can disagree, as with real models. Config chooses whether the model samples the ids that the tokenizer would have written
// (package bpe), and whether the chat template repeats what was sampled (package template). The last user message can order an answer: SAY,
// CALL, THINK (engine/reply.go). An image is a run of equal placeholder ids whose KV depends on its bytes (template/media.go).
//
// Config.Connector chooses how KV moves: as above with NIXL, or with LMCache, its shared storage or Mooncake (package connector). Requests of
// the Messages and the Responses API become chat requests (package api), so every count above includes them.
//
// Load has effects. max_num_seqs and the blocks limit how many requests run; the others wait. Prompts are computed one after the other at the
// engine's speed (engine/schedule.go). /metrics reports the load of each data-parallel rank (ops/metrics.go). Each engine publishes the
// changes of its prefix cache as KV events, and replays them (package kvevents). Their bytes are as in testdata/exchanges/kv-events, or in
// the encoding of older engines.
//
// # Using it
//
// Start(Config) listens on free ports; Close ends every goroutine. Tests look at Stats, Requests and Lone, make time pass with Advance, cause
// failures with SetFault, Switch and Restart, and hold legs with HoldHandBacks. Processes do the same at /_sim/ (control.go), except for
// holding. At its end, every suite that drives the proxy asserts that nothing was read wrongly, twice or under another salt. It also asserts
// that the scenario explains all pins that are left.
//
// # Limits
//
// Sampling is always greedy; temperature and seed change nothing. Decoding has the same speed however many requests run. The simulator does
// not model structured output, speculative decoding, media of different sizes, tensor and pipeline parallelism, or several KV cache groups. A
// decode leg whose params lack a required key waits for ever. A block list that is malformed or too short ends the engine. Both are derived
// from vLLM's source, not measured.
//
// The package imports nothing of this module, so that it cannot share a mistake with what it tests.
package vllmsim
