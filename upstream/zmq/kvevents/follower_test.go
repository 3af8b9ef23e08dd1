package kvevents

import (
	"errors"
	"hash/maphash"
	"log/slog"
	"testing"
	"time"
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

func TestFollower_FromTheBeginning(t *testing.T) {
	e := &engine{}
	f, n := e.follow(false)
	f.up()
	n.want(t, "up")
	for hash := range uint64(3) {
		e.hears(f, e.publish(hash))
	}
	n.want(t, "three batches", "started", says(0), says(1), says(2))
}

func TestFollower_JoinsLate(t *testing.T) {
	e := &engine{}
	e.publish(1)
	f, n := e.follow(false)
	f.up()
	e.hears(f, e.publish(2))
	n.want(t, "without replay", "lost", says(2))

	f, n = e.follow(true)
	f.up()
	n.want(t, "with replay", "started", says(1), says(2))
	e.hears(f, 1) // was on its way
	e.hears(f, e.publish(3))
	n.want(t, "what follows", says(3))

	e.first = 1
	f, n = e.follow(true)
	f.up()
	n.want(t, "with a replay that does not reach back", "lost", says(2), says(3))
	e.hears(f, e.publish(4))
	n.want(t, "what follows", says(4))
}

// An engine that has published nothing holds nothing.
func TestFollower_FreshEngine(t *testing.T) {
	e := &engine{}
	f, n := e.follow(true)
	f.up()
	n.want(t, "up", "started")
	e.hears(f, e.publish(1))
	n.want(t, "the first batch", says(1))
}

func TestFollower_Gaps(t *testing.T) {
	e := &engine{}
	f, n := e.follow(false)
	f.up()
	e.hears(f, e.publish(0))
	e.publish(1)
	e.hears(f, e.publish(2))
	n.want(t, "without replay", "started", says(0), "lost", says(2))

	f, n = e.follow(true)
	f.up()
	e.publish(3)
	e.publish(4)
	last := e.publish(5)
	e.publish(6) // published meanwhile
	e.hears(f, last)
	n.want(t, "with replay", "started", says(0), says(1), says(2), says(3), says(4), says(5), says(6))
	e.hears(f, 6)
	e.publish(7)
	e.first = 8
	e.hears(f, e.publish(8))
	n.want(t, "a replay that does not reach back", "lost", says(8))
	e.publish(9)
	e.fault = errors.New("refused")
	e.hears(f, e.publish(10))
	n.want(t, "no replay", "lost", says(10))
}

// The connection may break without the engine's end.
func TestFollower_ConnectionBreaks(t *testing.T) {
	e := &engine{}
	f, n := e.follow(true)
	f.up()
	e.hears(f, e.publish(0))
	e.hears(f, e.publish(1))
	n.want(t, "two batches", "started", says(0), says(1))
	e.publish(2)
	f.up()
	n.want(t, "up again", says(2))
	e.hears(f, e.publish(3))
	n.want(t, "what follows", says(3))
	e.first = 4 // the one that was heard last is not replayed any more
	e.publish(4)
	f.up()
	n.want(t, "up after long", "lost", "lost", says(4))

	f, n = e.follow(false)
	f.batch(0, stored(5))
	n.said = nil
	f.up()
	n.want(t, "up again without replay", "lost")
	f.batch(1, stored(6))
	n.want(t, "the next batch", "lost", says(6))
}

func TestFollower_EngineRestarts(t *testing.T) {
	e := &engine{}
	f, n := e.follow(true)
	f.up()
	for hash := range uint64(3) {
		e.hears(f, e.publish(hash))
	}
	n.said = nil
	*e = engine{now: e.now}
	f.up()
	n.want(t, "a restart", "lost", "started")
	e.publish(10)
	e.publish(11)
	e.publish(12)
	f.up()
	n.want(t, "a break before anything was heard", "started", says(10), says(11), says(12))
	// Another process that has published as many.
	*e = engine{now: e.now}
	for hash := range uint64(5) {
		e.publish(20 + hash)
	}
	f.up()
	n.want(t, "another restart", "lost", "started", says(20), says(21), says(22), says(23), says(24))

	f, n = e.follow(false)
	f.up()
	e.hears(f, 0)
	e.hears(f, 1)
	n.said = nil
	f.up()
	f.batch(0, stored(30))
	n.want(t, "a restart without replay", "lost", "started", says(30))
}

// What forwards events may change its publisher behind our connection.
func TestFollower_CountsAnew(t *testing.T) {
	e := &engine{}
	f, n := e.follow(false)
	f.up()
	e.hears(f, e.publish(0))
	e.hears(f, e.publish(1))
	n.said = nil
	f.batch(0, stored(7))
	n.want(t, "zero again", "lost", "started", says(7))
	f.batch(5, stored(8))
	n.want(t, "a gap", "lost", says(8))
	f.batch(3, stored(9))
	n.want(t, "back, not to zero", "lost", "lost", says(9))
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

// A replay endpoint that does not answer is not asked for each batch, and asked again after a while.
func TestFollower_ReplayThatFailsIsLeftAlone(t *testing.T) {
	e := &engine{fault: errors.New("refused")}
	f, n := e.follow(true)
	e.publish(0)
	f.up()
	for hash := range uint64(5) {
		e.hears(f, e.publish(1+hash))
	}
	if len(e.asked) != 1 {
		t.Errorf("asked %d times, want once", len(e.asked))
	}
	n.want(t, "batches", "lost", "lost", says(1), says(2), says(3), says(4), says(5))
	e.now, e.fault = e.now.Add(retryReplay), nil
	e.hears(f, e.publish(6))
	n.want(t, "the endpoint is back", "started", says(0), says(1), says(2), says(3), says(4), says(5), says(6))
	e.hears(f, e.publish(7))
	n.want(t, "what follows", says(7))
	if len(e.asked) != 2 {
		t.Errorf("asked %d times, want twice", len(e.asked))
	}
}

// Whatever is lost, doubled, restarted or cut: while the follower says that it knows what the engine holds, it does.
func TestFollower_KnowsOrSaysThatItDoesNot(t *testing.T) {
	for seed := range uint64(150) {
		random := newRandom(seed)
		e := &engine{}
		f, n := e.follow(random.intn(3) > 0)
		f.up()
		heard := 0
		for range 60 {
			switch random.intn(10) {
			case 0: // a connection breaks
				heard = len(e.batches)
				f.up()
			case 1: // the engine restarts
				*e = engine{now: e.now}
				heard = 0
				f.up()
			case 2: // a batch is dropped
				e.publish(random.next())
				heard = len(e.batches)
			case 3:
				e.first = random.intn(len(e.batches) + 1)
			case 4:
				e.fault = nil
				if random.intn(2) == 0 {
					e.fault = errors.New("refused")
				}
				e.now = e.now.Add(retryReplay / 2)
			default:
				e.publish(random.next())
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
					must(t, d.batch(batch, &one))
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

// random is a generator of numbers (splitmix64).
type random struct{ state uint64 }

func newRandom(seed uint64) *random { return &random{seed} }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	x := r.state
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (r *random) intn(n int) int { return int(r.next() % uint64(n)) }
