package convcache_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
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

// noteFor returns the note of a ticket, as of prefill with so long names.
func noteFor(tk convcache.Ticket, c *clock) convcache.Ticket {
	return tk.Note(convcache.Holder{Instance: "prefill", Incarnation: "start"}, c.now())
}

func TestNote_NamesNothingOfDecode(t *testing.T) {
	c := &clock{}
	tk := holdingTicket(7, convcache.Chain{BlockSize: 16, Blocks: []uint64{1, 2}, Tokens: 40})
	tk.Decode, tk.EngineID, tk.Params, tk.Reading = convcache.Holder{Instance: "decode", Incarnation: "1.7e+09"}, "engine", []byte("{}"), t
	tk.Outline, tk.SharedPrefixTokens = []uint32{4}, 5
	note := tk.Note(convcache.Holder{Instance: "http://prefill", Incarnation: "1.8e+09"}, c.now())
	if !note.HandedBack() || tk.HandedBack() {
		t.Errorf("handed back: got %v of the note and %v of the ticket, want true and false", note.HandedBack(), tk.HandedBack())
	}
	if note.Decode != (convcache.Holder{}) || note.EngineID != "" || note.Params != nil || note.Reading != nil {
		t.Errorf("note: got decode %v, engine %q, params %q, reading %v, want none", note.Decode, note.EngineID, note.Params, note.Reading)
	}
	if got, want := note.Deadline, c.now().Add(convcache.NoteTTL); !got.Equal(want) {
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
	none := holdingTicket(5, convcache.Chain{})
	for _, tc := range []struct {
		name          string
		note, there   convcache.Ticket
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

func TestMemory_CountsNamesOfNotes(t *testing.T) {
	tk := holdingTicket(1, convcache.Chain{})
	tk.Decode.Instance, tk.Params = "a name that is not the note's", []byte("nor these")
	const size int64 = overhead + int64(len("prefill")+len("start"))
	m, c := newMemory(0, size)
	note := noteFor(tk, c)
	mustPut(t, m, key(1), note, convcache.NoteTTL)
	small, _ := newMemory(0, size-1)
	if _, outcome := small.Put(t.Context(), key(1), note, convcache.NoteTTL); outcome != convcache.Refused {
		t.Errorf("put into one byte less: got %v, want %v", outcome, convcache.Refused)
	}
}

func TestMemory_BoundsNotesLikeTickets(t *testing.T) {
	m, c := newMemory(2, 0)
	first, second := noteFor(ticket(1, 0), c), noteFor(ticket(2, 0), c)
	mustPut(t, m, key(1), first, convcache.NoteTTL)
	mustPut(t, m, key(2), second, convcache.NoteTTL)
	if got := m.Len(); got != 2 {
		t.Errorf("conversations: got %d, want 2", got)
	}
	if got, want := ids(mustPut(t, m, key(3), ticket(3, 1), time.Hour)...), ids(first); !slices.Equal(got, want) {
		t.Errorf("displaced: got %v, want %v", got, want)
	}
	c.advance(convcache.NoteTTL)
	if got := m.EvictStale(); got != 2 {
		t.Errorf("evicted: got %d conversations, want 2", got)
	}
}

// What has expired does not outdate a note, and takes no room from it.
func TestMemory_KeepsNotesBesideWhatHasExpired(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	held := randomIDs(rand.New(rand.NewPCG(19, 20)), 100, 1<<32-1)
	m, c := newMemory(0, 0)
	mine := holdingTicket(1, mustChain(t, k, held[:70], 10, 16))
	mustPut(t, m, key(1), holdingTicket(2, mustChain(t, k, held, 10, 16)), time.Minute)
	for n := range 3 {
		mustPut(t, m, key(1), ticket(10+n, 0), time.Minute)
	}
	if displaced, outcome := m.Put(t.Context(), key(1), noteFor(mine, c), convcache.NoteTTL); outcome != convcache.Superseded || displaced != nil {
		t.Errorf("put: got %v and %d displaced, want %v and 0", outcome, len(displaced), convcache.Superseded)
	}
	c.advance(time.Minute)
	if displaced := mustPut(t, m, key(1), noteFor(mine, c), convcache.NoteTTL); len(displaced) != 0 {
		t.Errorf("displaced: got %v, want none", ids(displaced...))
	}
	if branches, _ := m.Peek(t.Context(), []convcache.Key{key(1)}); len(branches) != 1 || !branches[0].HandedBack() {
		t.Errorf("branches: got %+v, want the note", branches)
	}
}

// A put that stores nothing does not make its conversation one that was used.
func TestMemory_SupersededNotesKeepNothingAlive(t *testing.T) {
	m, c := newMemory(2, 0)
	old := ticket(1, 1)
	mustPut(t, m, key(1), old, time.Hour)
	mustPut(t, m, key(2), ticket(2, 1), time.Hour)
	late := noteFor(ticket(1, 1), c)
	if _, outcome := m.Put(t.Context(), key(1), late, convcache.NoteTTL); outcome != convcache.Superseded {
		t.Errorf("put: got %v, want %v", outcome, convcache.Superseded)
	}
	if got, want := ids(mustPut(t, m, key(3), ticket(3, 1), time.Hour)...), ids(old); !slices.Equal(got, want) {
		t.Errorf("displaced: got %v, want %v", got, want)
	}
}

// An alias leads to its home, and stores treat it as a note.
func TestAlias_LeadsToItsHome(t *testing.T) {
	home, now := convcache.Key{1}, time.Now()
	alias := convcache.Alias("", home, now)
	if got, is := alias.Home(); !is || got != home || !alias.HandedBack() || !alias.Deadline.Equal(now.Add(convcache.NoteTTL)) {
		t.Errorf("got %+v, leading to %v, %t", alias, got, is)
	}
	ticket := holdingTicket(7, convcache.Chain{BlockSize: 16, Blocks: []uint64{1, 2}, Tokens: 32, Whole: 3})
	note := ticket.Note(convcache.Holder{Instance: "p", Incarnation: "1"}, now)
	for name, b := range map[string]convcache.Branch{"a ticket": ticket.Branch, "a note": note.Branch} {
		if _, is := b.Home(); is {
			t.Errorf("%s is taken for an alias", name)
		}
	}
}

// Conversations with only aliases are those of others, and not counted; what is kept for them is found and forgotten as all else.
func TestAlias_IsNoConversation(t *testing.T) {
	c := &clock{}
	m := convcache.NewMemory(convcache.MemoryConfig{Now: c.now})
	ticket := holdingTicket(7, convcache.Chain{BlockSize: 16, Blocks: []uint64{1, 2}, Tokens: 32, Whole: 3})
	home, second := convcache.Key{1}, convcache.Key{2}
	want := func(n int) {
		t.Helper()
		if got := m.Len(); got != n {
			t.Errorf("%d conversations, want %d", got, n)
		}
	}
	m.Put(t.Context(), second, convcache.Alias("", home, c.now()), time.Minute)
	want(0)
	m.Put(t.Context(), home, ticket, time.Minute)
	want(1)
	other := holdingTicket(8, convcache.Chain{BlockSize: 16, Blocks: []uint64{8, 9}, Tokens: 32, Whole: 4})
	m.Put(t.Context(), second, other, time.Minute)
	want(2)
	m.Take(t.Context(), second, other.ID)
	want(1)
	m.Take(t.Context(), home, ticket.ID)
	want(0)
	m.Take(t.Context(), second, convcache.Alias("", home, c.now()).ID)
	want(0)
}

func TestPrefilled_KeepsTheMostOfEachCacheAndTheLargestOfAll(t *testing.T) {
	named := func(i int) convcache.Holder { return convcache.Holder{"p", strconv.Itoa(i)} }
	var known []convcache.Prefilled
	for i := range convcache.MaxPrefilled + 3 {
		known = convcache.AddPrefilled(known, convcache.Prefilled{named(i), 10 * (i + 1)})
		known = convcache.AddPrefilled(known, convcache.Prefilled{named(i), 1})
	}
	if len(known) != convcache.MaxPrefilled {
		t.Errorf("%d are known, want %d", len(known), convcache.MaxPrefilled)
	}
	for i := range convcache.MaxPrefilled + 3 {
		want := 10 * (i + 1)
		if i < 3 { // those that held the least
			want = 0
		}
		if got := convcache.PrefilledIn(known, named(i)); got != want {
			t.Errorf("cache %d: %d tokens, want %d", i, got, want)
		}
	}
	before := slices.Clone(known)
	if known = convcache.AddPrefilled(known, convcache.Prefilled{named(99), 5}); !slices.Equal(known, before) {
		t.Error("one that holds less than all others was taken in")
	}
}
