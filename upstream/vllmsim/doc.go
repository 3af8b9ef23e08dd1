// Package vllmsim simulates vLLM instances well enough to catch a proxy that hands KV over wrongly. It is a test oracle
// and the engine of demos: it talks HTTP like vLLM 0.32 or 0.33 with NixlConnector (release.go), answers byte for byte like
// the exchanges in testdata/exchanges except for what differs by nature, and knows what the KV in every block is.
//
// # Model
//
// KV is modelled as one number per token slot, a function of the token and of the KV before it that is actually
// present (content.go). Blocks have ids; freed ids are handed out again and their content lasts until then (blocks.go).
// A finished request that came with kv_transfer_params leaves its blocks pinned, prefill's under a lease that
// heartbeats prolong, decode's under a fixed TTL (pins.go). Another instance reads them over a real loopback
// connection (transfer.go), by position, the last blocks of the list, comparing nothing but the engine id and the
// expiry time, as vLLM does (admission.go), once both engines have the same version and model path, as NIXL's
// handshake asks (transfer.go). One completed read, or a notification without a read, frees them.
//
// The reader then compares what it got with the KV of its own prompt. A difference is counted as CorruptReads, and the
// answer is a different one, because what is sampled is a function of the KV that is present (reply.go). Wrong blocks
// are filed in the prefix cache like right ones; requests that hit them later are Poisoned and wrong too. Wrong KV that
// prefill has read counts once more on the decode instance that reads it from there.
//
// A prefill leg that no turn waits for hands a turn's KV back to prefill (handback.go, which says how it is told from other requests).
// An aborted request pins nothing, and what it has read and computed stays in the prefix cache, in whole blocks; one that ends by itself
// takes its lease. For these legs the owner compares what vLLM does not: how many ids, tokens and blocks there are, with what it has
// pinned (UnevenHandBacks), and for every read the cache_salt of the reader, behind a ~ if it has one, with that of the request whose KV it is (OtherSalts). Wrong
// ids are wrong KV, as ever. Fault.HandBacks harms these legs alone, and HoldHandBacks stops them.
//
// Text and tokens can disagree as they do in life: the tokenizer is a byte-level BPE (tokenizer.go), and Config chooses
// whether the model samples what the tokenizer would have written and whether the chat template repeats what was
// sampled (template.go). The last user message can order an answer: SAY, CALL, THINK (reply.go).
//
// An image among the text is a run of equal placeholder ids, as many for every image, and KV that depends on its bytes
// (media.go). Text that spells the placeholders has the same ids and other KV, so a reader that was told equal ids still
// finds out. Block hashes differ, and with them the prefix cache, which is what vLLM uses mm_hash for.
//
// Other connectors (Config.Connector) move KV in other ways. With LMCache a prefill instance pushes the KV of each prompt to a decode
// instance and announces it over ZeroMQ (lmcache.go), and decode finds it by a hash of the tokens, from the moment at which room was made
// for it: a request that comes before its KV reads garbage, which is counted as CorruptReads like any wrong KV, and as EarlyReads. With
// shared storage both roles save and load chunks of files in a folder (storage.go). With Mooncake (mooncake.go) both legs name a transfer, a server beside
// prefill tells its engine ids, and decode waits for prefill to push, comparing nothing either. Engines of P2P-NCCL and MoRI-IO serve one phase each and find each other by addresses in request ids (addressed.go): what prefill
// pushes, or decode reads, is compared in the same way (p2pnccl.go, moriio.go). They announce themselves over ZeroMQ
// (registration.go). Both are made after vLLM's source, and not measured.
//
// The Messages API takes chat's way through the engine between two translations (messages.go), so every count above holds for it too. Stock
// streams of it carry no params: Config.MessageParams is a plug-in that adds them. Config.MergeSystem is a template that takes a system
// message in front only. Of what the API refuses, the statuses are vLLM's; most messages of body validation are not, nor does thinking
// change more than reasoning_effort.
//
// The Responses API does the same (responses.go). Its params need no plug-in, since the event that ends a stream has the whole response.
// There is no store: previous_response_id is never known, and background is refused. Structured output and logprobs mean nothing here, as
// does the order of the keys of a call, by which a real template may render this API's history and chat's to different ids.
//
// Load shows. max_num_seqs and the blocks limit how many requests run, the others wait their turn, prompts are computed one
// after the other at the engine's speed (schedule.go), and /metrics says so, for each data-parallel rank (metrics.go).
//
// Each engine publishes what becomes of its prefix cache as KV events, byte for byte as the recordings in
// testdata/exchanges/kv-events, or in the encoding of older engines, and replays them (kvevents.go). ClearBlocks clears it under
// tickets, which vLLM does not (kvevents_clear.go).
//
// # Using it
//
// Start(Config) listens on free ports; Close ends every goroutine. Tests look at Stats, Requests and Lone, make time
// pass with Advance, make things fail with SetFault, Switch and Restart, and hold legs with HoldHandBacks. Processes do the same at /_sim/
// (control.go), but for holding. Every suite that drives the proxy ends by asserting that nothing was read wrongly, twice or under another
// salt, and that the pins left are those the scenario explains.
//
// # Limits
//
// Every sampling is greedy; temperature and seed change nothing. Decoding goes at the same pace however many requests run.
// Structured output, speculative decoding,
// media of different sizes, tensor and pipeline parallelism, several KV cache groups
// are not modelled. A decode leg whose params lack a required key waits for ever and one whose block list is malformed or
// too short ends the engine; both are derived from vLLM's source, not measured.
//
// Of LMCache, a sender that is stuck stays so until it is started again; only that it does not answer was measured. One whose receiver
// has no room goes on answering, however much waits to be sent.
//
// The package imports nothing of this module, so that it cannot share a mistake with what it tests.
package vllmsim
