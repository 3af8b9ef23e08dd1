package convcache_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
)

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
