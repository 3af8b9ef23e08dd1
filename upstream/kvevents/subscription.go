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

	"carryover/upstream/zmtp"
)

// maxFrame bounds a batch. A block of 16 tokens takes some 60 bytes, so that it has the blocks of four million tokens.
const maxFrame = 16 << 20

// replayLimit bounds a replay: 10,000 batches, unless the engine keeps more (buffer_steps).
const replayLimit = 30 * time.Second

// endOfReplay is the number behind the last batch of a replay: -1.
const endOfReplay = math.MaxUint64

// Subscription follows the events of one engine: of a server with several data-parallel ranks, of one of them.
type Subscription struct {
	Endpoint string       // tcp://host:port where it publishes them
	Replay   string       // tcp://host:port where it answers questions for old ones, "" for nowhere
	Topic    string       // of its messages
	Sink     Sink         // is told of them
	Logger   *slog.Logger // nil discards
}

// Run follows the events until ctx ends, and returns the cause then. An engine that is away is dialled until it is there. The error
// of an endpoint that is none is returned at once. At the end all is Lost.
func (s *Subscription) Run(ctx context.Context) error {
	f := s.follower(ctx)
	defer s.Sink.Lost()
	subscriber := zmtp.Subscriber{
		Endpoint: s.Endpoint, Topic: s.Topic, Limits: limits(), Logger: s.Logger,
		Up: f.up,
		Handle: func(m zmtp.Message) {
			if seq, payload, ok := split(m.Frames); ok {
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

// ask asks the engine for the batches from a number on. Each answer is one of them, with the topic before it since vLLM #45177.
func (s *Subscription) ask(ctx context.Context, from uint64, each func(seq uint64, payload []byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, replayLimit)
	defer cancel()
	question := [][]byte{binary.BigEndian.AppendUint64(nil, from)}
	err := zmtp.Ask(ctx, s.Replay, limits(), question, func(m zmtp.Message) (more bool, err error) {
		seq, payload, ok := split(m.Frames)
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

// split returns the number and the payload of a message: its last two frames.
func split(frames [][]byte) (seq uint64, payload []byte, ok bool) {
	n := len(frames)
	if n < 2 || n > 3 || len(frames[n-2]) != 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(frames[n-2]), frames[n-1], true
}

func limits() zmtp.Limits { return zmtp.Limits{MaxFrame: maxFrame, MaxParts: 4} }
