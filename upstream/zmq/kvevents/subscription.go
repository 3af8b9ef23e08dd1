// Package kvevents follows the events that engines publish about their KV caches: stored blocks, removed blocks, cleared caches (vLLM,
// distributed/kv_events.py: ZmqEventPublisher; --kv-events-config). Events of a prefill engine show which beginnings of prompts its
// prefix cache has now (package prefixindex).
//
// An engine publishes batches with sequence numbers from 0 on, on one PUB socket for each data-parallel rank. It may have a replay
// endpoint, which sends old batches again. A [Subscription] passes each event to its [Sink] once, in order, and promises that
//
//   - no event is missing between [Sink.Started] and [Sink.Lost]: the replay endpoint closes a gap, or the subscription calls Lost;
//   - events of different engine processes are never joined: after each break of the connection the replay endpoint has to show the
//     last received batch, else the subscription calls Lost;
//   - it calls Lost after a batch that can't be parsed; it skips unknown members and events;
//   - it remembers only one sequence number and the hash of one batch, and frames have 16 MiB at most.
//
// It reads events as maps with the member type (vLLM 0.24 and newer); hashes as integers, and as bytes, whose last eight are the
// integer (v1/core/kv_cache_utils.py, maybe_convert_block_hash).
package kvevents

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"time"

	"carryover/upstream/zmq/zmtp"
)

// maxFrame bounds a batch in bytes. A block of 16 tokens takes some 60 bytes, so a batch may have the blocks of four million tokens.
const maxFrame = 16 << 20

// replayLimit bounds a replay. It has up to 10,000 batches, unless the engine keeps more (buffer_steps).
const replayLimit = 30 * time.Second

// endOfReplay is the number behind the last batch of a replay: -1.
const endOfReplay = math.MaxUint64

// Subscription follows the events of one engine, or of one data-parallel rank of a server.
type Subscription struct {
	Endpoint string // tcp://host:port where the engine publishes events
	Replay   string // tcp://host:port where the engine sends old batches again, "" for none
	Sink     Sink
	Logger   *slog.Logger // nil discards
}

// Run follows the events until ctx ends, and returns the cause then. It dials until the engine answers; an invalid endpoint is an
// error at once. Before it returns, it calls Lost.
func (s *Subscription) Run(ctx context.Context) error {
	f := s.follower(ctx)
	defer s.Sink.Lost()
	subscriber := zmtp.Subscriber{
		Endpoint: s.Endpoint, Limits: limits(), Logger: s.Logger,
		Up: f.up,
		Handle: func(frames [][]byte) {
			if seq, payload, ok := split(frames); ok {
				f.batch(seq, payload)
			}
		},
	}
	return subscriber.Run(ctx)
}

func (s *Subscription) follower(ctx context.Context) *follower {
	f := &follower{
		sink: s.Sink, log: cmp.Or(s.Logger, slog.New(slog.DiscardHandler)).With("publisher", s.Endpoint), now: time.Now, seed: maphash.MakeSeed(),
	}
	if s.Replay != "" {
		f.replay = func(from uint64, each func(uint64, []byte) error) error { return s.ask(ctx, from, each) }
	}
	return f
}

func (s *Subscription) ask(ctx context.Context, from uint64, each func(seq uint64, payload []byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, replayLimit)
	defer cancel()
	question := [][]byte{binary.BigEndian.AppendUint64(nil, from)}
	err := zmtp.Ask(ctx, s.Replay, limits(), question, func(frames [][]byte) (more bool, err error) {
		seq, payload, ok := split(frames)
		switch {
		case !ok:
			return false, errBatch
		case seq == endOfReplay:
			return false, nil
		}
		return true, each(seq, payload)
	})
	if err != nil {
		return fmt.Errorf("replay from %d: %w", from, err)
	}
	return nil
}

func split(frames [][]byte) (seq uint64, payload []byte, ok bool) {
	if len(frames) != 3 || len(frames[1]) != 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(frames[1]), frames[2], true
}

func limits() zmtp.Limits { return zmtp.Limits{MaxFrame: maxFrame, MaxParts: 4} }

// Sink receives the events of one engine's KV cache, from one goroutine. Its arguments are valid during the call only.
type Sink interface {
	// Started says that the cache is empty, because the engine has started or has cleared it, and that no later event will be missing.
	Started()
	// Stored says that the prefix cache has new blocks.
	Stored(Blocks)
	// Removed says that the prefix cache has dropped blocks.
	Removed(hashes []uint64)
	// Lost says that events may be missing: the content of the cache is not known.
	Lost()
}

// Blocks are consecutive blocks of a prompt or its answer in the prefix cache.
type Blocks struct {
	Parent  uint64   // hash of the block before the first
	Root    bool     // the blocks begin a prompt
	Hashes  []uint64 // one for each block
	Tokens  []uint32 // of all blocks, Size for each
	Size    int
	Adapter string // the LoRA adapter that computed them, "" for none
	// Extra has for each block, as text, what else its hash depends on: the cache salt in a prompt's first block, and images. It is
	// nil if the hashes depend on nothing else.
	Extra []string
}
