package proof

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"carryover/logtest"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// answering is an attempt whose prompt is known, before anything of decode's answer.
func answering(tb testing.TB, arena *Arena, prompt []uint32) *IDs {
	tb.Helper()
	k := attemptOf(tb)
	tell(k, prompt...)
	k.Forward(true)
	k.Grow(16)
	k.Retain(arena)
	return k
}

// sealed ends the chain as Seal does.
func sealed(tb testing.TB, k *IDs, tokens int) {
	tb.Helper()
	if _, ok := k.seal(tokens); !ok {
		tb.Fatalf("the chain does not cover %d tokens", tokens)
	}
}

// tell has a look-up find the ids of the prompt.
func tell(k *IDs, ids ...uint32) { k.compare(facts.Prompt{IDs: ids, List: list(ids...)}) }

// list is how engines spell ids.
func list(ids ...uint32) []byte { return rawjson.AppendIDs(nil, ids) }

func wantUse(tb testing.TB, arena *Arena, want int64) {
	tb.Helper()
	if used, _ := arena.Use(); used != want {
		tb.Errorf("%d bytes are in use, want %d", used, want)
	}
}

// wantIDs holds r to these ids, in each way in which it tells them.
func wantIDs(tb testing.TB, r *Retained, want []uint32) {
	tb.Helper()
	if r == nil {
		tb.Fatalf("nothing is retained, want %d ids", len(want))
	}
	if got := string(r.AppendList([]byte("x"))); got != "x"+string(list(want...)) {
		tb.Fatalf("got %.200s, want %.200s", got, list(want...))
	}
	if r.Len() != len(want) || !r.Are(list(want...)) {
		tb.Fatalf("%d ids, and they are %.200s: %t; want %d", r.Len(), list(want...), r.Are(list(want...)), len(want))
	}
}

// retain keeps ids in an arena, nil if there is no room for all.
func retain(arena *Arena, ids []uint32) *Retained {
	r := &Retained{arena: arena}
	for ids := range slices.Chunk(ids, 100) {
		r.add(ids)
	}
	if r.full {
		return nil
	}
	return r
}

func TestArena_NeverHoldsMoreThanItsBound(t *testing.T) {
	for _, bound := range []int64{-1, 0, 1, 511, 512, 513, 5119, 5120} {
		arena := NewArena(bound)
		var all []*Retained
		for {
			r := retain(arena, []uint32{1})
			if r == nil {
				break
			}
			all = append(all, r)
		}
		used, most := arena.Use()
		if one := int64(cap(slices.Grow([]byte(nil), 2))); int64(len(all)) != max(bound, 0)/one || used != int64(len(all))*one || most != max(bound, 0) {
			t.Errorf("bound %d: %d fit and take %d of %d", bound, len(all), used, most)
		}
		for _, r := range all {
			wantIDs(t, r, []uint32{1})
			r.Free()
		}
		wantUse(t, arena, 0)
	}
	if used, most := (*Arena)(nil).Use(); used != 0 || most != 0 {
		t.Errorf("no arena has %d of %d bytes", used, most)
	}
}

// What can't be kept whole is of no use, and takes no room from others.
func TestArena_WhatDoesNotFitGivesBackAtOnce(t *testing.T) {
	arena := NewArena(4096)
	small := slices.Repeat([]uint32{1 << 30}, 200)
	first := retain(arena, small)
	taken, _ := arena.Use()
	k := answering(t, arena, slices.Repeat([]uint32{1 << 30}, 400))
	if grown, _ := arena.Use(); grown <= taken {
		t.Fatalf("%d bytes are in use, %d before the second", grown, taken)
	}
	for added := 0; !k.retained.full; added++ {
		k.Add(nil, list(uint32(added)))
	}
	wantUse(t, arena, taken)
	first.Free()
	k.Add(nil, list(2)) // there is room again, and it lacks one
	wantUse(t, arena, 0)
	sealed(t, k, k.chain.Len())
	if k.Retained(k.chain.Len()) != nil {
		t.Error("ids are handed over of which some found no room")
	}
	k.Discard()
	third := retain(arena, small)
	wantIDs(t, third, small)
	third.Free()
	wantUse(t, arena, 0)
}

// Streams begin, grow, end and are handed over at once. Each reads what it has written.
func TestArena_IsSharedByManyStreams(t *testing.T) {
	const streams, turns, bytes = 8, 60, 100 << 10
	type retainedIDs struct {
		*Retained
		want []byte
	}
	arena := NewArena(bytes)
	handed := make(chan retainedIDs, streams)
	var running, freeing sync.WaitGroup
	end := func(k retainedIDs) {
		if !k.Are(k.want) || !slices.Equal(k.AppendList(nil), k.want) {
			t.Error("a stream reads what another has written")
		}
		k.Free()
	}
	for stream := range streams {
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(stream), 3))
			for range turns {
				ids := make([]uint32, 1+random.IntN(bytes/streams/2))
				for i := range ids {
					ids[i] = uint32(stream) + random.Uint32()>>random.UintN(32)
				}
				r := retain(arena, ids)
				if used, most := arena.Use(); used > most || used < 0 {
					t.Errorf("%d of %d bytes are in use", used, most)
				}
				switch k := (retainedIDs{r, list(ids...)}); {
				case r == nil:
				case random.IntN(2) == 0:
					end(k)
				default:
					handed <- k
				}
			}
		})
	}
	freeing.Go(func() {
		for k := range handed {
			end(k)
		}
	})
	running.Wait()
	close(handed)
	freeing.Wait()
	wantUse(t, arena, 0)
}

// What the ids cover, and what the chain of the ticket covers, must be the same. Every doubt keeps none.
func TestRetained_OfOtherIDsIsNothing(t *testing.T) {
	var arena *Arena
	var k *IDs
	for name, row := range map[string]struct {
		tokens int
		do     func()
	}{
		"decode counts more than it has told": {6, func() { k.Add(nil, list(4, 5)) }},
		"decode counts less":                  {3, func() { k.Add(nil, list(4, 5)) }},
		"an id is in the chain alone":         {5, func() { k.chain.Add([]uint32{4}); k.Add(nil, list(5)) }},
		"and the last one has no KV":          {4, func() { k.chain.Add([]uint32{4}); k.Add(nil, list(5)) }},
		"an id is not in the chain":           {4, func() { k.Add(nil, list(4)); k.retained.add([]uint32{5}) }},
		"no tokens":                           {0, func() {}},
		"an output that is no list":           {5, func() { k.Add(nil, list(4, 5)); k.Add(nil, []byte("[1.0]")) }},
		"decode has computed another prompt":  {5, func() { k.Add(list(1, 2, 4), list(4, 5)) }},
		"retained when the answer has begun":  {4, func() { k.Discard(); k.Add(nil, list(4)); k.Retain(arena) }},
		"retained when its prompt is let go":  {5, func() { k.Discard(); k.drop(); k.Retain(arena); k.Add(nil, list(4, 5)) }},
		"the prompt is another one now": {3, func() {
			tell(k, 7, 8, 9)
			k.Grow(16)
		}},
		"discarded":              {5, func() { k.Add(nil, list(4, 5)); k.Discard(); k.Discard() }},
		"no room was given":      {5, func() { k.Discard(); k.Retain(nil); k.Add(nil, list(4, 5)) }},
		"an engine tells no ids": {5, func() { k.Discard(); k.Lost(); k.Retain(arena); k.Add(nil, list(4, 5)) }},
	} {
		arena = NewArena(1 << 20)
		k = answering(t, arena, []uint32{1, 2, 3})
		row.do()
		k.seal(row.tokens)
		if r := k.Retained(row.tokens); r != nil {
			t.Errorf("%s: got %s", name, r.AppendList(nil))
		}
		k.Discard()
		wantUse(t, arena, 0)
	}
	k = answering(t, arena, []uint32{1, 2, 3})
	if k.Retained(2) != nil {
		t.Error("ids are handed over before the chain has ended")
	}
	k.Discard()
	var none *IDs
	none.Retain(NewArena(1 << 20))
	if none.Retained(1) != nil {
		t.Error("ids of nothing are retained")
	}
	none.Discard()
}

// Whoever retains twice, or begins another attempt, has one set of ids.
func TestRetain_LeavesNothingBehind(t *testing.T) {
	arena := NewArena(1 << 20)
	k := answering(t, arena, []uint32{1, 2, 3})
	once, _ := arena.Use()
	k.Retain(arena)
	wantUse(t, arena, once)
	k.turn.ids = k
	k.turn.Begin(t.Context(), "turn", unknown(), unknown())
	wantUse(t, arena, 0)
}

// unknown is the incarnation of an engine that nobody has asked.
func unknown() *fleet.Incarnation {
	engines := fleet.New(fleet.Config{})
	engines.Set([]upstream.Instance{{Name: "p", Role: upstream.RolePrefill}})
	return engines.Engine(upstream.RolePrefill, "p").Last()
}

// Operators read once why nothing of an engine is reused, whichever API asks.
func TestBegin_WarnsOfAnUnknownIncarnation(t *testing.T) {
	for api := range body.API(body.APIs) {
		var log logtest.Log
		k, engine := attemptOf(t), unknown()
		k.turn.api, k.turn.proof.Logger = api, log.Logger()
		for range 2 {
			k.turn.Begin(t.Context(), "turn", engine, engine)
		}
		if got := log.Count("why=incarnation"); got != 1 {
			t.Errorf("%s: %d warnings, want 1", api.Path(), got)
		}
	}
}

// A response whose prompt can't be rendered can be handed back all the same, because its own answer reports the ids. A message reports none.
func TestRender_WithoutAnEndpointSparesResponsesOnly(t *testing.T) {
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: time.Minute})
	t.Cleanup(client.Close)
	engines := fleet.New(fleet.Config{Client: client, AskLimit: time.Minute})
	engines.Set([]upstream.Instance{{Name: "p", Role: upstream.RolePrefill, BaseURL: "http://127.0.0.1:1"}}) // nobody listens
	for api, want := range map[body.API]string{body.Responses: "", body.Messages: LacksRender} {
		k := attemptOf(t)
		req, err := body.ParseRequest(api, []byte(`{"model":"m","input":"x","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`))
		must(t, err)
		k.turn.req, k.turn.api, k.turn.prefill = req, api, engines.Engine(upstream.RolePrefill, "p").Last()
		if got := k.turn.render(t.Context()); got != want || k.turn.unrendered != Unproven(LacksRender) {
			t.Errorf("%s: lacks %q, unrendered %q, want %q", api.Path(), got, k.turn.unrendered, want)
		}
	}
}

// The order of Retain and Grow is of no matter as long as the prompt stays what it is.
func TestRetain_BeforeTheChainBegins(t *testing.T) {
	for _, then := range [][]uint32{{1, 2, 3}, {5, 6, 7}} { // what is looked up last
		arena, k := NewArena(1<<20), attemptOf(t)
		tell(k, 1, 2, 3)
		k.Forward(true)
		k.Retain(arena)
		if then[0] != 1 {
			tell(k, then...)
		}
		k.Grow(16)
		k.drop()
		k.Add(nil, list(4))
		sealed(t, k, 4)
		r := k.Retained(4)
		if changed := then[0] != 1; changed != (r == nil) {
			t.Fatalf("the prompt has changed: %t, nothing is retained: %t", changed, r == nil)
		}
		if r != nil {
			wantIDs(t, r, []uint32{1, 2, 3, 4})
		}
		r.Free()
		wantUse(t, arena, 0)
	}
}

// However an engine spells a list, it is the same; and nothing else is: TestIDEcho_AcceptsTheIDsThatWereSentAndNoOthers has more spellings.
func TestAre_TakesTheseIDsAndNoOthers(t *testing.T) {
	arena := NewArena(1 << 20)
	k := answering(t, arena, []uint32{1, 20})
	k.Add(nil, list(300))
	sealed(t, k, 3)
	r := k.Retained(3)
	for told, want := range map[string]bool{
		`[1,20,300]`: true, ` [1, 20 ,300 ] `: true, `[1,20,301]`: false, `[1,20]`: false, `[1,20,300,4]`: false, `null`: false,
	} {
		if got := r.Are([]byte(told)); got != want {
			t.Errorf("%q: got %t, want %t", told, got, want)
		}
	}
	r.Free()
	wantUse(t, arena, 0)
}

// Streams of the token proof add an id for each event.
func TestAdd_WithRetainedAllocatesNothing(t *testing.T) {
	arena := NewArena(16 << 20)
	k := answering(t, arena, manyIDs(100))
	id := list(12345)
	if n := testing.AllocsPerRun(10_000, func() { k.retained.add([]uint32{12345}) }); n != 0 {
		t.Errorf("%v allocations for an id that is added, want 0", n)
	}
	k = answering(t, arena, manyIDs(100))
	k.chain.Add(make([]uint32, 20_000)) // its own memory grows with the chain
	if n := testing.AllocsPerRun(1000, func() { k.Add(nil, id) }); n != 0 {
		t.Errorf("%v allocations for an event, want 0", n)
	}
}

// manyIDs are ids as a vocabulary of 128k has them in a text: its first 256 are bytes, and what follows is the rarer the later it stands.
func manyIDs(n int) []uint32 {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 8, 128<<10-257)
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = 256 + uint32(zipf.Uint64())
	}
	return ids
}

// FuzzRetained has streams of a small room begin, grow, end and give back in an order that the input chooses, and compares all that they
// tell with lists of ids.
func FuzzRetained(f *testing.F) {
	f.Add(uint64(1), []byte{0, 1, 2, 3, 4, 5, 6, 7})
	for seed := range byte(40) {
		steps := make([]byte, 200)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(steps) // it never fails
		f.Add(uint64(seed), steps)
	}
	f.Add(uint64(2), []byte{8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 0, 8, 8, 8})
	f.Add(uint64(3), []byte("\x00\x08\x10\x18\x20\x28\x30\x38\x01\x09\x11\x19\x02\x03\x04\x05\x06\x07"))
	f.Fuzz(func(t *testing.T, seed uint64, steps []byte) {
		const streams, bytes = 8, 12 << 10
		random := rand.New(rand.NewPCG(seed, 4))
		arena := NewArena(bytes)
		var retained [streams]*IDs
		var want [streams][]uint32
		for _, step := range steps {
			stream, k := step>>3%streams, retained[step>>3%streams]
			switch step & 7 {
			case 0: // another stream takes its place
				k.Discard()
				ids := anyIDs(random, 1+random.IntN(1500))
				lent := slices.Clone(ids)
				retained[stream], want[stream] = answering(t, arena, lent), ids
				retained[stream].drop() // the memory of a prompt serves another one while its answer goes on
				clear(lent)
			case 1: // it ends, and all or all but the last has KV
				if k == nil {
					continue
				}
				all := want[stream]
				tokens := max(1, len(all)-random.IntN(2))
				full := k.retained.full
				sealed(t, k, tokens)
				r := k.Retained(tokens)
				if (r == nil) != full {
					t.Fatalf("full: %t, handed over: %t", full, r != nil)
				}
				if r != nil {
					wantIDs(t, r, all[:tokens])
					other := slices.Clone(all[:tokens])
					other[random.IntN(tokens)]++
					if r.Are(list(other...)) || r.Are(list(all[:tokens-1]...)) || r.Are(list(append(slices.Clone(all[:tokens]), 0)...)) {
						t.Fatal("another list is the same")
					}
				}
				if k.Retained(tokens) != nil {
					t.Fatal("they are handed over twice")
				}
				k.Discard()
				r.Free()
				r.Free()
				retained[stream] = nil
			default: // it goes on
				if k == nil {
					continue
				}
				ids := anyIDs(random, 1+random.IntN(int(step&7)))
				k.Add(nil, list(ids...))
				want[stream] = append(want[stream], ids...)
			}
			if used, most := arena.Use(); used > most || used < 0 {
				t.Fatalf("%d of %d bytes are in use", used, most)
			}
		}
		for _, k := range retained {
			k.Discard()
		}
		wantUse(t, arena, 0)
	})
}

// anyIDs are ids of all sizes, their borders among them.
func anyIDs(random *rand.Rand, n int) []uint32 {
	borders := []uint32{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1<<21 - 1, 1 << 21, 1<<28 - 1, 1 << 28, math.MaxUint32}
	ids := make([]uint32, n)
	for i := range ids {
		if ids[i] = random.Uint32() >> random.UintN(32); random.IntN(4) == 0 {
			ids[i] = borders[random.IntN(len(borders))]
		}
	}
	return ids
}
