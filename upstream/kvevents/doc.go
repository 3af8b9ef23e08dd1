// Package kvevents follows what engines publish of their KV caches: which blocks they store, which they remove, and when they clear
// all (vLLM, distributed/kv_events.py: ZmqEventPublisher; --kv-events-config).
//
// An engine publishes batches with sequence numbers from 0 on, a PUB socket for each data-parallel rank, and may answer questions
// for old ones. A [Subscription] hands each event to its [Sink] once, in order, and promises that
//
//   - between [Sink.Started] or [Sink.Cleared] and [Sink.Lost] not one event is missing: a gap is closed by the replay endpoint, or
//     told as Lost;
//   - events of one process are not taken for those that follow another's: after each break of the connection the replay endpoint
//     has to show the batch that was heard last, or what is known is Lost;
//   - a batch that can't be read is Lost; members and events that it does not know do no harm;
//   - what is remembered here is one number and one batch, and frames have 16 MiB at most.
//
// It reads both encodings: events as arrays with the name first (vLLM 0.23 and older), and as maps with the member type (0.24 and
// newer); hashes as integers, and as bytes, of which the last eight are the integer (v1/core/kv_cache_utils.py,
// maybe_convert_block_hash).
//
// # What events are for
//
// Prompts go to the prefill engine whose prefix cache holds their beginning, with all that it has evicted and all that
// others had it compute. A decode engine that has cleared its cache loses its tickets. Package fleet draws both
// conclusions.
package kvevents
