package kvevents

import (
	"errors"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

// engine is a publisher of batches, each of which stores one block, as a follower sees it.
type engine struct {
	batches [][]byte
	first   int   // what was before is not replayed any more
	fault   error // of the replay endpoint
	asked   []uint64
	now     time.Time
}

func (e *engine) replay(from uint64, each func(uint64, []byte) error) error {
	e.asked = append(e.asked, from)
	if e.fault != nil {
		return e.fault
	}
	for seq := max(int(from), e.first); seq < len(e.batches); seq++ {
		if err := each(uint64(seq), e.batches[seq]); err != nil {
			return err
		}
	}
	return nil
}

// publish adds a batch that stores a block, and returns its number.
func (e *engine) publish(hash uint64) uint64 {
	e.batches = append(e.batches, stored(hash))
	return uint64(len(e.batches) - 1)
}

// follow returns a follower of an engine, with a replay endpoint or without.
func (e *engine) follow(replays bool) (*follower, *notes) {
	n := &notes{}
	e.now = time.Now()
	f := &follower{sink: n, log: slog.New(slog.DiscardHandler), seed: maphash.MakeSeed(), now: func() time.Time { return e.now }}
	if replays {
		f.replay = e.replay
	}
	return f, n
}

// hears has the follower hear a batch as it is published.
func (e *engine) hears(f *follower, seq uint64) { f.batch(seq, e.batches[seq]) }

// Steps of an engine and its follower, and what the sink is told at each "told": the numbers of blocks, "lost" and "started".
//
//	follow N    another follower, with a replay endpoint if N is not 0
//	up          its connection is up
//	publish N   the engine publishes a batch that stores block N, and it is heard; "drop N" is not
//	hear S      batch S is heard, late or once more; "hear S N" is a batch S with block N, of whatever engine
//	from S      what was before S is not replayed any more
//	restart     the engine has published nothing yet
//	refuse      its replay endpoint does, until "answer", a while later
//	forget      what was told before
func TestFollower_TellsWhatTheEngineHolds(t *testing.T) {
	for name, steps := range map[string]string{
		"from the beginning":              "follow 0; up; told; publish 0; publish 1; publish 2; told started 0 1 2",
		"it joins late":                   "drop 1; follow 0; up; publish 2; told lost 2",
		"it joins late, with replay":      "drop 1; drop 2; follow 1; up; told started 1 2; hear 1; publish 3; told 3", // one was on its way
		"it joins later than is replayed": "drop 1; drop 2; drop 3; from 1; follow 1; up; told lost 2 3; publish 4; told 4",
		"an engine that is fresh":         "follow 1; up; told started; publish 1; told 1", // which holds nothing
		"a gap":                           "follow 0; up; publish 0; drop 1; publish 2; told started 0 lost 2",
		"a gap, with replay": "drop 0; drop 1; drop 2; follow 1; up; drop 3; drop 4; drop 5; drop 6; hear 5; told started 0 1 2 3 4 5 6; hear 6;" + // one was published meanwhile
			"drop 7; from 8; publish 8; told lost 8; drop 9; refuse; publish 10; told lost 10",
		"a connection that breaks": "follow 1; up; publish 0; publish 1; told started 0 1; drop 2; up; told 2; publish 3; told 3;" +
			"from 4; drop 4; up; told lost lost 4", // the one that was heard last is not replayed any more
		"one without replay": "follow 0; hear 0 5; forget; up; told lost; hear 1 6; told lost 6",
		"a restart": "follow 1; up; publish 0; publish 1; publish 2; forget; restart; up; told lost started; drop 10; drop 11; drop 12;" +
			"up; told started 10 11 12;" + // a break before anything was heard
			"restart; drop 20; drop 21; drop 22; drop 23; drop 24; up; told lost started 20 21 22 23 24", // by one that has published as many
		"a restart without replay": "drop 0; drop 1; follow 0; up; hear 0; hear 1; forget; up; hear 0 30; told lost started 30",
		// What forwards events may change its publisher behind our connection.
		"numbers that begin anew": "follow 0; up; publish 0; publish 1; forget; hear 0 7; told lost started 7; hear 5 8; told lost 8; hear 3 9; told lost lost 9",
		// A replay endpoint that does not answer is not asked for each batch, and asked again after a while.
		"a replay that fails": "refuse; follow 1; drop 0; up; publish 1; publish 2; publish 3; publish 4; publish 5; asked 1; told lost lost 1 2 3 4 5;" +
			"answer; publish 6; told started 0 1 2 3 4 5 6; publish 7; told 7; asked 2",
	} {
		t.Run(name, func(t *testing.T) { (&engine{}).play(t, steps) })
	}
}

func (e *engine) play(t *testing.T, steps string) {
	t.Helper()
	var f *follower
	var n *notes
	for step := range strings.SplitSeq(steps, ";") {
		words := strings.Fields(step)
		var numbers []int
		for _, word := range words[1:] {
			number, _ := strconv.Atoi(word)
			numbers = append(numbers, number)
		}
		switch words[0] {
		case "follow":
			f, n = e.follow(numbers[0] > 0)
		case "up":
			f.up()
		case "drop":
			e.publish(uint64(numbers[0]))
		case "publish":
			e.hears(f, e.publish(uint64(numbers[0])))
		case "hear":
			seq := uint64(numbers[0])
			if len(numbers) > 1 {
				f.batch(seq, stored(uint64(numbers[1])))
			} else {
				e.hears(f, seq)
			}
		case "from":
			e.first = numbers[0]
		case "restart":
			*e = engine{now: e.now}
		case "refuse":
			e.fault = errors.New("refused")
		case "answer":
			e.now, e.fault = e.now.Add(retryReplay), nil
		case "forget":
			n.said = nil
		case "told":
			want := words[1:]
			for i, word := range want {
				if number, err := strconv.Atoi(word); err == nil {
					want[i] = says(uint64(number))
				}
			}
			n.want(t, step, want...)
		case "asked":
			if len(e.asked) != numbers[0] {
				t.Errorf("the replay was asked for %d times, want %d", len(e.asked), numbers[0])
			}
		default:
			t.Fatalf("no step is called %q", words[0])
		}
	}
}

func TestFollower_UnreadableBatchIsLost(t *testing.T) {
	e := &engine{}
	f, n := e.follow(true)
	f.up()
	e.hears(f, e.publish(1))
	f.batch(1, []byte{0xc1})
	f.batch(2, stored(3))
	n.want(t, "a batch that can't be read", "started", says(1), "lost", says(3))
	if f.next != 3 {
		t.Errorf("waits for %d, want 3", f.next)
	}
}

// Whatever is lost, doubled, restarted or cut: while the follower says that it knows what the engine holds, it does.
func TestFollower_KnowsOrSaysThatItDoesNot(t *testing.T) {
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible
		e := &engine{}
		f, n := e.follow(random.IntN(3) > 0)
		f.up()
		heard := 0
		for range 60 {
			switch random.IntN(10) {
			case 0: // a connection breaks
				heard = len(e.batches)
				f.up()
			case 1: // the engine restarts
				*e = engine{now: e.now}
				heard = 0
				f.up()
			case 2: // a batch is dropped
				e.publish(random.Uint64())
				heard = len(e.batches)
			case 3:
				e.first = random.IntN(len(e.batches) + 1)
			case 4:
				e.fault = nil
				if random.IntN(2) == 0 {
					e.fault = errors.New("refused")
				}
				e.now = e.now.Add(retryReplay / 2)
			default:
				e.publish(random.Uint64())
				for ; heard < len(e.batches); heard++ {
					e.hears(f, uint64(heard))
				}
				held, known := n.holds()
				if known && len(held) != len(e.batches) {
					t.Fatalf("seed %d: %d blocks are known, the engine has %d", seed, len(held), len(e.batches))
				}
				for _, batch := range e.batches {
					var d decoder
					var one notes
					one.held = map[uint64]bool{}
					zmqtest.Must(t, d.batch(batch, &one))
					for hash := range one.held {
						if known && !n.held[hash] {
							t.Fatalf("seed %d: block %d is not known", seed, hash)
						}
					}
				}
			}
		}
	}
}
