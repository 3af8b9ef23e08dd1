package convcache_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
)

func TestRelation_OfRealChains(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	held := randomIDs(rand.New(rand.NewPCG(13, 14)), 100, 1<<32-1)
	edited := func(at int) []uint32 {
		ids := slices.Clone(held)
		ids[at]++
		return ids
	}
	old := mustChain(t, k, held[:70], 10, 16)
	for _, tc := range []struct {
		name  string
		later convcache.Chain
		want  convcache.Relation
	}{
		{"the same", mustChain(t, k, held[:70], 70, 16), convcache.Contained},
		{"one token more", mustChain(t, k, held[:71], 10, 16), convcache.Contained},
		{"much more", mustChain(t, k, held, 10, 16), convcache.Contained},
		{"more, edited behind the last full block", mustChain(t, k, edited(69), 10, 16), convcache.Contained},
		{"edited behind the last full block", mustChain(t, k, edited(69)[:70], 10, 16), convcache.Diverges},
		{"one token less", mustChain(t, k, held[:69], 10, 16), convcache.Diverges},
		{"one block", mustChain(t, k, held[:16], 10, 16), convcache.Diverges},
		{"more, edited in the last full block", mustChain(t, k, edited(63), 10, 16), convcache.Diverges},
		{"more, edited in the second block", mustChain(t, k, edited(16), 10, 16), convcache.Diverges},
		{"more, edited in the first block", mustChain(t, k, edited(15), 10, 16), convcache.Unrelated},
		{"less than a block", mustChain(t, k, held[:15], 10, 16), convcache.Unrelated},
		{"another block size", mustChain(t, k, held, 10, 32), convcache.Unrelated},
		{"unknown block size", mustChain(t, k, held[:70], 10, 0), convcache.Unrelated},
		{"none", convcache.Chain{}, convcache.Unrelated},
		{"another key", mustChain(t, chainKey(t, "fedcba9876543210"), held, 10, 16), convcache.Unrelated},
	} {
		if got := old.Relation(tc.later); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}

	unknown := mustChain(t, k, held[:70], 10, 0)
	if got := unknown.Relation(mustChain(t, k, held[:70], 20, 0)); got != convcache.Contained {
		t.Errorf("the same in blocks of unknown size: got %v, want %v", got, convcache.Contained)
	}
	if got := unknown.Relation(mustChain(t, k, held, 20, 0)); got != convcache.Unrelated {
		t.Errorf("more in blocks of unknown size: got %v, want %v", got, convcache.Unrelated)
	}
	if got := (convcache.Chain{}).Relation(convcache.Chain{}); got != convcache.Unrelated {
		t.Errorf("two without chain: got %v, want %v", got, convcache.Unrelated)
	}
	if got := (convcache.Chain{}).Relation(old); got != convcache.Unrelated {
		t.Errorf("none before one: got %v, want %v", got, convcache.Unrelated)
	}
}

// holdingTicket returns a ticket with the given chain.
func holdingTicket(n int, c convcache.Chain) convcache.Ticket {
	tk := ticket(n, 0)
	tk.Chain, tk.Tokens = c, c.Tokens
	return tk
}

func TestMemory_SupersedesWhatALaterChainContains(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	held := randomIDs(rand.New(rand.NewPCG(15, 16)), 200, 1<<32-1)
	regenerated := append(slices.Clone(held[:60]), 1, 2, 3, 4) // another fourth block
	m, _ := newMemory(0, 0)

	first := holdingTicket(1, mustChain(t, k, held[:70], 40, 16))
	again := holdingTicket(2, mustChain(t, k, regenerated, 40, 16))
	third := holdingTicket(3, mustChain(t, k, held[:130], 100, 16))
	mustPut(t, m, key(1), first, time.Hour)
	if displaced := mustPut(t, m, key(1), again, time.Hour); len(displaced) != 0 {
		t.Errorf("after a regenerated turn: displaced %v, want none", ids(displaced...))
	}
	if got, want := ids(mustPut(t, m, key(1), third, time.Hour)...), ids(first); !slices.Equal(got, want) {
		t.Errorf("after a turn that goes on: displaced %v, want %v", got, want)
	}
	if _, outcome := m.Take(t.Context(), key(1), first.ID); outcome != convcache.Consumed {
		t.Errorf("take of the superseded: got %v, want %v", outcome, convcache.Consumed)
	}
	branches, _ := m.Peek(t.Context(), []convcache.Key{key(1)})
	if len(branches) != 2 || branches[0].ID != third.ID || branches[1].ID != again.ID {
		t.Errorf("branches: got %+v, want the third turn's and the regenerated one's", branches)
	}
}

func TestMemory_CountsBlocksOutlineAndNames(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	tk := holdingTicket(1, mustChain(t, k, make([]uint32, 16*100), 0, 16))
	tk.Decode, tk.EngineID = convcache.Holder{Instance: "12345", Incarnation: "1234567"}, "12345678901"
	tk.Outline = make([]uint32, 9)
	const size = overhead + 8*100 + 4*9 + 5 + 7 + 11
	m, _ := newMemory(0, size)
	mustPut(t, m, key(1), tk, time.Hour)
	small, _ := newMemory(0, size-1)
	if _, outcome := small.Put(t.Context(), key(1), tk, time.Hour); outcome != convcache.Refused {
		t.Errorf("put into one byte less: got %v, want %v", outcome, convcache.Refused)
	}
}
