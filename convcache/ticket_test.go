package convcache

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
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
		later Chain
		want  Relation
	}{
		{"the same", mustChain(t, k, held[:70], 70, 16), Contained},
		{"one token more", mustChain(t, k, held[:71], 10, 16), Contained},
		{"much more", mustChain(t, k, held, 10, 16), Contained},
		{"more, edited behind the last full block", mustChain(t, k, edited(69), 10, 16), Contained},
		{"edited behind the last full block", mustChain(t, k, edited(69)[:70], 10, 16), Diverges},
		{"one token less", mustChain(t, k, held[:69], 10, 16), Diverges},
		{"one block", mustChain(t, k, held[:16], 10, 16), Diverges},
		{"more, edited in the last full block", mustChain(t, k, edited(63), 10, 16), Diverges},
		{"more, edited in the second block", mustChain(t, k, edited(16), 10, 16), Diverges},
		{"more, edited in the first block", mustChain(t, k, edited(15), 10, 16), Unrelated},
		{"less than a block", mustChain(t, k, held[:15], 10, 16), Unrelated},
		{"another block size", mustChain(t, k, held, 10, 32), Unrelated},
		{"unknown block size", mustChain(t, k, held[:70], 10, 0), Unrelated},
		{"none", Chain{}, Unrelated},
		{"another key", mustChain(t, chainKey(t, "fedcba9876543210"), held, 10, 16), Unrelated},
	} {
		if got := old.Relation(tc.later); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
	unknown := mustChain(t, k, held[:70], 10, 0)
	for _, tc := range []struct {
		name       string
		old, later Chain
		want       Relation
	}{
		{"the same in blocks of unknown size", unknown, mustChain(t, k, held[:70], 20, 0), Contained},
		{"more in blocks of unknown size", unknown, mustChain(t, k, held, 20, 0), Unrelated},
		{"two without chain", Chain{}, Chain{}, Unrelated},
		{"none before one", Chain{}, old, Unrelated},
	} {
		if got := tc.old.Relation(tc.later); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// holdingTicket returns a ticket with the given chain.
func holdingTicket(n int, c Chain) Ticket {
	tk := ticket(n, 0)
	tk.Chain, tk.Tokens = c, c.Tokens
	return tk
}

// noteFor returns the note of a ticket, as of prefill with so long names.
func noteFor(tk Ticket, c *clock) Ticket {
	return tk.Note(Holder{Instance: "prefill", Incarnation: "start"}, c.now())
}

func TestNote_NamesNothingOfDecode(t *testing.T) {
	c := &clock{}
	tk := holdingTicket(7, Chain{BlockSize: 16, Blocks: []uint64{1, 2}, Tokens: 40})
	tk.Decode, tk.EngineID, tk.Params, tk.Reading = Holder{Instance: "decode", Incarnation: "1.7e+09"}, "engine", []byte("{}"), t
	tk.Outline, tk.SharedPrefixTokens = []uint32{4}, 5
	note := tk.Note(Holder{Instance: "http://prefill", Incarnation: "1.8e+09"}, c.now())
	if !note.HandedBack() || tk.HandedBack() {
		t.Errorf("handed back: got %v of the note and %v of the ticket, want true and false", note.HandedBack(), tk.HandedBack())
	}
	if note.Decode != (Holder{}) || note.EngineID != "" || note.Params != nil || note.Reading != nil {
		t.Errorf("note: got decode %v, engine %q, params %q, reading %v, want none", note.Decode, note.EngineID, note.Params, note.Reading)
	}
	if got, want := note.Deadline, c.now().Add(NoteTTL); !got.Equal(want) {
		t.Errorf("deadline: got %v, want %v", got, want)
	}
	if note.ID != tk.ID || !slices.Equal(note.Outline, tk.Outline) || note.Tokens != tk.Tokens || note.SharedPrefixTokens != tk.SharedPrefixTokens ||
		!slices.Equal(note.Chain.Blocks, tk.Chain.Blocks) {
		t.Errorf("note: got %+v, want what the ticket %+v says of the conversation", note, tk)
	}
}

func TestNote_IsOutdatedBy(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	held := randomIDs(rand.New(rand.NewPCG(17, 18)), 100, 1<<32-1)
	c := &clock{}
	mine := holdingTicket(1, mustChain(t, k, held[:70], 10, 16))
	note := noteFor(mine, c)
	longer, shorter, equal := holdingTicket(2, mustChain(t, k, held, 10, 16)), holdingTicket(3, mustChain(t, k, held[:40], 10, 16)), holdingTicket(4, mine.Chain)
	none := holdingTicket(5, Chain{})
	for _, tc := range []struct {
		name          string
		note, there   Ticket
		byTicket, own bool // outdated by the ticket, and by its note
	}{
		{"more tokens", note, longer, true, true},
		{"fewer tokens", note, shorter, false, false},
		{"the same tokens", note, equal, true, false},
		{"no tokens", note, none, false, false},
		{"no tokens at all", noteFor(none, c), none, false, false},
	} {
		noted := noteFor(tc.there, c)
		if got := tc.note.OutdatedBy(&tc.there.Branch); got != tc.byTicket {
			t.Errorf("%s: by a ticket: got %v, want %v", tc.name, got, tc.byTicket)
		}
		if got := tc.note.OutdatedBy(&noted.Branch); got != tc.own {
			t.Errorf("%s: by a note: got %v, want %v", tc.name, got, tc.own)
		}
	}
}

// An alias leads to its home, and stores treat it as a note.
func TestAlias_LeadsToItsHome(t *testing.T) {
	home, now := Key{1}, time.Now()
	alias := Alias("", home, now)
	if got, is := alias.Home(); !is || got != home || !alias.HandedBack() || !alias.Deadline.Equal(now.Add(NoteTTL)) {
		t.Errorf("got %+v, leading to %v, %t", alias, got, is)
	}
	ticket := holdingTicket(7, Chain{BlockSize: 16, Blocks: []uint64{1, 2}, Tokens: 32, Whole: 3})
	note := ticket.Note(Holder{Instance: "p", Incarnation: "1"}, now)
	for name, b := range map[string]Branch{"a ticket": ticket.Branch, "a note": note.Branch} {
		if _, is := b.Home(); is {
			t.Errorf("%s is taken for an alias", name)
		}
	}
}

// Conversations with only aliases are those of others, and not counted; what is kept for them is found and forgotten as all else.
func TestAlias_IsNoConversation(t *testing.T) {
	m, c := newMemory(0, 0)
	home, second, alias, other := key(1), key(2), Alias("", key(1), c.now()), ticket(8, 1)
	of := ticket(7, 1)
	for n, step := range []struct {
		do   func()
		want int
	}{
		{func() { m.Put(t.Context(), second, alias, time.Minute) }, 0},
		{func() { m.Put(t.Context(), home, of, time.Minute) }, 1},
		{func() { m.Put(t.Context(), second, other, time.Minute) }, 2},
		{func() { m.Take(t.Context(), second, other.ID) }, 1},
		{func() { m.Take(t.Context(), home, of.ID) }, 0},
		{func() { m.Take(t.Context(), second, alias.ID) }, 0},
	} {
		step.do()
		if got := m.Len(); got != step.want {
			t.Errorf("step %d: %d conversations, want %d", n, got, step.want)
		}
	}
}

func TestPrefilled_KeepsTheMostOfEachCacheAndTheLargestOfAll(t *testing.T) {
	named := func(i int) Holder { return Holder{"p", strconv.Itoa(i)} }
	var known []Prefilled
	for i := range MaxPrefilled + 3 {
		known = AddPrefilled(known, Prefilled{named(i), 10 * (i + 1)})
		known = AddPrefilled(known, Prefilled{named(i), 1})
	}
	if len(known) != MaxPrefilled {
		t.Errorf("%d are known, want %d", len(known), MaxPrefilled)
	}
	for i := range MaxPrefilled + 3 {
		want := 10 * (i + 1)
		if i < 3 { // those that held the least
			want = 0
		}
		if got := PrefilledIn(known, named(i)); got != want {
			t.Errorf("cache %d: %d tokens, want %d", i, got, want)
		}
	}
	before := slices.Clone(known)
	if known = AddPrefilled(known, Prefilled{named(99), 5}); !slices.Equal(known, before) {
		t.Error("one that holds less than all others was taken in")
	}
}
