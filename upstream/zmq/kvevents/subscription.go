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

// maxFrame is the greatest size of a batch in bytes. A block of 16 tokens takes some 60 bytes, so a batch may have the blocks of four
// million tokens.
const maxFrame = 16 << 20

// replayLimit is how long a replay may take. It has up to 10,000 batches, unless the engine keeps more (buffer_steps).
const replayLimit = 30 * time.Second

// endOfReplay is the number behind the last batch of a replay: -1.
const endOfReplay = math.MaxUint64

// Subscription follows the events of one engine. Of a server with several data-parallel ranks, it follows one rank.
type Subscription struct {
	Endpoint string       // tcp://host:port where the engine publishes events
	Replay   string       // tcp://host:port where the engine sends old batches again, "" for none
	Sink     Sink         // receives the events
	Logger   *slog.Logger // nil discards
}

// Run follows the events until ctx ends, and returns the cause then. It dials until the engine answers. For an invalid endpoint it
// returns an error at once. Before it returns, it tells the sink Lost.
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

// ask asks the engine for the batches from a number on. Each answer has one batch.
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

// split returns the number and the payload of a message, which come after the topic.
func split(frames [][]byte) (seq uint64, payload []byte, ok bool) {
	if len(frames) != 3 || len(frames[1]) != 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(frames[1]), frames[2], true
}

func limits() zmtp.Limits { return zmtp.Limits{MaxFrame: maxFrame, MaxParts: 4} }
