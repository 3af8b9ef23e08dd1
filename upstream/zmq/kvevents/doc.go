// Package kvevents follows the events that engines publish about their KV caches: which blocks they store, which they remove, and when
// they clear the cache (vLLM, distributed/kv_events.py: ZmqEventPublisher; --kv-events-config).
//
// An engine publishes batches with sequence numbers from 0 on, on one PUB socket for each data-parallel rank. It may have a replay
// endpoint, which sends old batches again. A [Subscription] hands each event to its [Sink] once, in order, and promises that
//
//   - no event is missing between [Sink.Started] and [Sink.Lost]: the replay endpoint closes a gap, or the sink is
//     told Lost;
//   - events of different engine processes are never joined: after each break of the connection the replay endpoint has to show the
//     batch that was heard last, else the sink is told Lost;
//   - after a batch that can't be parsed the sink is told Lost; unknown members and events are skipped;
//   - it remembers only one sequence number and the hash of one batch, and frames have 16 MiB at most.
//
// It reads events as maps with the member type (vLLM 0.24 and newer); hashes as integers, and as bytes, of which the last eight are
// the integer (v1/core/kv_cache_utils.py, maybe_convert_block_hash).
//
// # What events are for
//
// With the events of a prefill engine, Carryover knows which beginnings of prompts are in its prefix cache now, including
// evictions and prompts of other clients, and sends a prompt where its beginning is (package prefixindex).
package kvevents
