package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/convcachetest"
	"carryover/convcache/redistest"
)

// How many sequences of operations are compared, and how long they are. All kinds of operations and outcomes come in
// the first forty; more search for rare combinations.
const (
	sequences      = 40
	soakSequences  = 500
	sequenceLength = 30
)

// twins are a Redis and what it has to be like, a Memory or several, that are asked the same, with one clock.
type twins struct {
	t      *testing.T
	rng    *rand.Rand
	clock  *clock
	memory convcachetest.Store
	redis  *replica
	key    Key   // the operations are on this one
	keys   []Key // it and those of the sequences before
	// ages lets the clock go on. Then nothing is put back: as long as tickets end in the order in which they were
	// put it does not show that the server's clock stands still beside ours.
	ages  bool
	mixes bool     // every third ticket is larger than largestOfMixed
	put   []Ticket // all that were ever put
	notes int      // of these
	held  []Ticket // those that were taken out, and may be put back
	trail []string
}

// TestRedis_DoesWhatMemoryDoes compares the outcomes of random operations on one conversation whose tickets have
// prefixes, histories and ids in common.
func TestRedis_DoesWhatMemoryDoes(t *testing.T) {
	t.Parallel()
	c := &clock{}
	compare(t, Config{Now: c.now}, c, convcache.NewMemory(convcache.MemoryConfig{Now: c.now}), false)
}

// compare has a Redis of that config and its model do random operations.
func compare(t *testing.T, cfg Config, c *clock, model convcachetest.Store, mixes bool) {
	t.Helper()
	s := redistest.Start(t)
	cfg.Addresses = []string{s.Addr()}
	r := openRedis(t, cfg)
	mustCheck(t, r)
	outcomes := make(map[Outcome]int)
	displaced, notes := 0, 0
	sequences := sequences
	if soakRedis(t) > 0 {
		sequences = soakSequences
	}
	for seed := range sequences {
		w := &twins{
			t: t, rng: rand.New(rand.NewPCG(uint64(seed), 3)), clock: c, memory: model, redis: r, //nolint:gosec // reproducible
			key: key(seed), keys: lastKeys(seed), ages: seed%3 == 2, mixes: mixes,
		}
		for range sequenceLength {
			outcome, n := w.step()
			outcomes[outcome]++
			displaced += n
			if t.Failed() {
				t.Fatalf("sequence %d:\n%v", seed, w.trail)
			}
		}
		notes += w.notes
	}
	for _, outcome := range []Outcome{Found, Taken, Stored, Empty, Expired, Consumed, Superseded} {
		if outcomes[outcome] < sequences/10 {
			t.Errorf("only %d operations of %d ended as %v", outcomes[outcome], sequences*sequenceLength, outcome)
		}
	}
	if displaced < sequences || notes < sequences/2 {
		t.Errorf("only %d tickets were displaced and %d notes put in %d sequences", displaced, notes, sequences)
	}
}

// lastKeys returns the key of a sequence, and those of the ones before.
func lastKeys(seed int) []Key {
	keys := []Key{key(seed)}
	for seed > 0 && len(keys) < convcache.MaxKeys {
		seed--
		keys = append(keys, key(seed))
	}
	return keys
}

// step does one operation on both, and returns how it ended and how many tickets it displaced.
func (w *twins) step() (Outcome, int) {
	ctx := context.Background()
	switch n := w.rng.IntN(10); {
	case n < 5 || len(w.put) == 0:
		return w.compareMemoryPut(ctx, w.next())
	case n < 6:
		w.comparePeek(ctx, w.keys)
		return w.comparePeek(ctx, w.keys[:1]), 0
	case n < 9 || !w.ages:
		id := w.put[w.rng.IntN(len(w.put))].ID
		if w.rng.IntN(3) > 0 { // one that is likely to be there
			id = w.put[max(0, len(w.put)-1-w.rng.IntN(4))].ID
		}
		one, first := w.memory.Take(ctx, w.key, id)
		two, second := w.redis.Take(ctx, w.key, id)
		w.trail = append(w.trail, fmt.Sprintf("take %v: %v\n", id, first))
		w.sameOutcome(first, second, Consumed)
		if ticketText(one) != ticketText(two) {
			w.t.Errorf("take: memory gives %q, redis %q", ticketText(one), ticketText(two))
		}
		if first == Taken {
			w.held = append(w.held, one)
		}
		return first, 0
	default:
		w.clock.advance(time.Duration(1+w.rng.IntN(4)) * redisTTL / 3)
		w.trail = append(w.trail, "time goes on\n")
		return Unavailable, 0
	}
}

func (w *twins) comparePeek(ctx context.Context, keys []Key) Outcome {
	one, first := w.memory.Peek(ctx, keys)
	two, second := w.redis.Peek(ctx, keys)
	w.trail = append(w.trail, fmt.Sprintf("peek at %d: %v %v\n", len(keys), first, len(one)))
	w.sameOutcome(first, second, Empty)
	if a, b := describe(one, keyedText), describe(two, keyedText); !slices.Equal(a, b) {
		w.t.Errorf("peek at %d: memory shows %q, redis %q", len(keys), a, b)
	}
	return first
}

func (w *twins) compareMemoryPut(ctx context.Context, tk Ticket) (Outcome, int) {
	one, first := w.memory.Put(ctx, w.key, tk, redisTTL)
	two, second := w.redis.Put(ctx, w.key, tk, redisTTL)
	w.trail = append(w.trail, fmt.Sprintf("put %s: %v %v\n", ticketText(tk), first, describe(one, ticketText)))
	w.sameOutcome(first, second, first)
	if a, b := describe(one, ticketText), describe(two, ticketText); !slices.Equal(a, b) {
		w.t.Errorf("put: memory displaces %q, redis %q", a, b)
	}
	w.put = append(w.put, tk)
	w.held = append(w.held, one...)
	return first, len(one)
}

// sameOutcome compares outcomes. What has expired is forgotten when something is put by the one, and by the other
// when the server's clock says so; then they may differ between Expired and gone.
func (w *twins) sameOutcome(memory, redis, gone Outcome) {
	if w.ages && (memory == gone || memory == Expired) && (redis == gone || redis == Expired) {
		return
	}
	if memory != redis {
		w.t.Errorf("outcome: memory %v, redis %v", memory, redis)
	}
}

// next makes the next ticket to put: one that was taken out before, one that is there already, or one that is
// new, and as often as not has blocks in common with others.
func (w *twins) next() Ticket {
	if !w.ages && len(w.held) > 0 && w.rng.IntN(4) == 0 {
		at := w.rng.IntN(len(w.held))
		tk := w.held[at]
		w.held = slices.Delete(w.held, at, at+1)
		if w.rng.IntN(2) == 0 {
			tk = tk.Note(Holder{Instance: fmt.Sprint("prefill-", len(w.put)), Incarnation: "1.8e+09"}, w.clock.now())
			w.notes++
		}
		return tk
	}
	if len(w.put) > 0 && w.rng.IntN(12) == 0 {
		tk := w.put[len(w.put)-1]
		w.held = slices.DeleteFunc(w.held, func(h Ticket) bool { return h.ID == tk.ID })
		return tk
	}
	tk := ticket(0, w.rng.IntN(40))
	if w.mixes && w.rng.IntN(3) == 0 {
		tk = ticket(0, 2*largestOfMixed)
	}
	tk.Outline = []uint32{w.rng.Uint32()}
	tk.FreshAsOf, tk.SharedPrefixTokens = w.clock.now(), w.rng.IntN(3)
	tk.Decode.Instance = fmt.Sprint("decode-", len(w.put))
	tk.Chain = w.chain()
	tk.Tokens = tk.Chain.Tokens
	return tk
}

// chain returns one of a small tree of chains: ids that agree up to a point, in blocks of 16 or, seldom, 32.
func (w *twins) chain() Chain {
	if w.rng.IntN(8) == 0 {
		return Chain{}
	}
	size := []int{16, 16, 16, 16, 16, 16, 32, 0}[w.rng.IntN(8)]
	ids := make([]uint32, 1+w.rng.IntN(6)*16+w.rng.IntN(2)*5)
	from := w.rng.IntN(8) * 16 // where it leaves the main line
	for i := range ids {
		if i >= from {
			ids[i] = uint32(1 + from)
		}
	}
	return mustChain(w.t, sharedSecret(w.t).ChainKey(), ids, size)
}

func describe[T any](all []T, text func(T) string) []string {
	texts := []string{}
	for _, one := range all {
		texts = append(texts, text(one))
	}
	return texts
}

func keyedText(b KeyedBranch) string { return b.Key.Short() + " " + branchText(b.Branch) }

func branchText(b convcache.Branch) string {
	return fmt.Sprintf("%v %v %v %+v %v %v %v %v", b.ID, b.Outline, b.Tokens, b.Chain,
		b.Decode, b.Prefill, b.SharedPrefixTokens, b.Deadline.Format(time.RFC3339Nano))
}

func ticketText(t Ticket) string {
	return fmt.Sprintf("%s %q %q %v", branchText(t.Branch), t.Params, t.EngineID, t.FreshAsOf.UnixNano())
}
