package convcache

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestRelation_OfRealChains(t *testing.T) {
	const intact = -1
	k := chainKey(t, "0123456789abcdef")
	held := randomIDs(rand.New(rand.NewPCG(13, 14)), 100, 1<<32-1)
	of := func(tokens, edited, blockSize int) Chain {
		ids := slices.Clone(held[:tokens])
		if edited != intact {
			ids[edited]++
		}
		return mustChain(t, k, ids, 10, blockSize)
	}
	old, unknown := of(70, intact, 16), of(70, intact, 0)
	related := func(what any, old, later Chain, want bool) {
		t.Helper()
		if got := old.containedIn(later); got != want {
			t.Errorf("%v: got %v, want %v", what, got, want)
		}
	}
	for later, want := range map[[3]int]bool{ // tokens, the edited one, block size
		{70, intact, 16}: true, {71, intact, 16}: true, {100, intact, 16}: true,
		{100, 69, 16}:    true, // behind the last full block
		{70, 69, 16}:     false,
		{69, intact, 16}: false, {16, intact, 16}: false, {100, 63, 16}: false, {100, 16, 16}: false,
		{100, 15, 16}: false, {15, intact, 16}: false, {100, intact, 32}: false, {70, intact, 0}: false,
	} {
		related(later, old, of(later[0], later[1], later[2]), want)
	}
	related("none", old, Chain{}, false)
	related("another key", old, mustChain(t, chainKey(t, "fedcba9876543210"), held, 10, 16), false)
	related("the same in blocks of unknown size", unknown, of(70, intact, 0), true)
	related("more in blocks of unknown size", unknown, of(100, intact, 0), false)
	related("two without chain", Chain{}, Chain{}, false)
	related("none before one", Chain{}, old, false)
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
	now, prefill := time.Now(), Holder{Instance: "http://prefill", Incarnation: "1.8e+09"}
	tk := holdingTicket(7, Chain{BlockSize: 16, Blocks: []uint64{1, 2}, Tokens: 40})
	tk.Outline, tk.SharedPrefixTokens = []uint32{4}, 5
	want := Ticket{Branch: tk.Branch}
	want.Prefill, want.Deadline = prefill, now.Add(NoteTTL)
	tk.Decode, tk.EngineID, tk.Params, tk.Reading = Holder{Instance: "decode", Incarnation: "1.7e+09"}, "engine", []byte("{}"), t
	if note := tk.Note(prefill, now); !reflect.DeepEqual(note, want) || !note.HandedBack() || tk.HandedBack() {
		t.Errorf("got %+v, want %+v, which alone is handed back", note, want)
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
	home, second, alias, other, of := key(1), key(2), Alias("", key(1), c.now()), ticket(8, 1), ticket(7, 1)
	counts := func(want int) {
		t.Helper()
		if got := m.Len(); got != want {
			t.Errorf("%d conversations, want %d", got, want)
		}
	}
	mustPut(t, m, second, alias, time.Minute)
	counts(0)
	mustPut(t, m, home, of, time.Minute)
	counts(1)
	mustPut(t, m, second, other, time.Minute)
	counts(2)
	m.Take(t.Context(), second, other.ID)
	counts(1)
	m.Take(t.Context(), home, of.ID)
	counts(0)
	if _, got := m.Take(t.Context(), second, alias.ID); got != Taken {
		t.Errorf("take of the alias: got %v", got)
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
		if got := slices.Contains(known, Prefilled{named(i), 10 * (i + 1)}); got != (i >= 3) { // the first three held the least
			t.Errorf("cache %d with its most tokens: listed %t", i, got)
		}
	}
	before := slices.Clone(known)
	if known = AddPrefilled(known, Prefilled{named(99), 5}); !slices.Equal(known, before) {
		t.Error("one that holds less than all others was taken in")
	}
}

// An outline tells neither which parts a request has, nor whether another ticket's request has the same.
func TestOutline_IsKeyed(t *testing.T) {
	parts, seen := []uint64{0x1122334455667788, 0x99aabbccddeeff00}, map[uint32]bool{0x11223344: true, 0x55667788: true, 0x99aabbcc: true, 0xddeeff00: true}
	for _, secret := range []string{"0123456789abcdef", "fedcba9876543210"} {
		for id := range byte(2) {
			for _, tag := range mustSecret(t, secret).OutlineKey().Outline(TicketID{id}, parts) {
				if seen[tag] {
					t.Errorf("%x is seen again, of ticket %d under %s", tag, id, secret)
				}
				seen[tag] = true
			}
		}
	}
}
