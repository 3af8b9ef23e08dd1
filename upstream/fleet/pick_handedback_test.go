package fleet

import (
	"slices"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/prefixindex"
	"carryover/upstream/routing"
)

// paced is a fleet of two prefill engines that take a millisecond for a token.
func paced(t *testing.T) *weighing {
	t.Helper()
	w := newWeighing(t)
	for _, p := range w.p {
		w.pass(time.Second)
		p.Engine().LearnPrefill(1000, time.Second, false)
	}
	return w
}

// offered is what the policy was told of one of the prefill instances.
type offered struct {
	prefix, holds int
	delay         time.Duration
}

// tell picks once and returns what the policy was told of both.
func (w *weighing) tell(hint Hint) (got [2]offered) {
	w.t.Helper()
	w.told = seen{}
	_, done, err := w.Pick(upstream.RolePrefill, hint, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	done()
	for i, name := range []string{"p0", "p1"} {
		c := w.told.candidates[name]
		got[i] = offered{c.Prefix, c.Holds, time.Duration(c.Delay).Round(time.Millisecond)}
	}
	return got
}

func TestPick_TellsWhatWasHandedBack(t *testing.T) {
	const ms = time.Millisecond
	none := offered{delay: time.Second}
	for _, row := range []struct {
		name   string
		notes  []Holding
		tokens int
		holds  []Holding
		want   [2]offered
	}{
		{"of this start", []Holding{{"p1", "1", 700}}, 1000, nil, [2]offered{none, {3, 700, 300 * ms}}},
		{"less than a piece", []Holding{{"p1", "1", 16}}, 1000, nil, [2]offered{none, {1, 16, 984 * ms}}},
		{"all of the prompt, and more", []Holding{{"p1", "1", 5000}}, 1000, nil, [2]offered{none, {20, 5000, ms}}},
		{"of both", []Holding{{"p1", "1", 700}, {"p0", "1", 300}}, 1000, nil, [2]offered{{2, 300, 700 * ms}, {3, 700, 300 * ms}}},
		{"the longest of a start", []Holding{{"p1", "1", 700}, {"p1", "1", 200}}, 1000, nil, [2]offered{none, {3, 700, 300 * ms}}},
		{"the longest of a start, last", []Holding{{"p1", "1", 256}, {"p1", "1", 700}}, 1000, nil, [2]offered{none, {3, 700, 300 * ms}}},
		{"behind what decode holds", []Holding{{"p1", "1", 700}}, 1000, []Holding{{"d0", "1", 700}}, [2]offered{none, {3, 700, time.Second}}},
		{"beyond what decode holds", []Holding{{"p1", "1", 700}}, 1000, []Holding{{"d0", "1", 300}}, [2]offered{none, {3, 700, 600 * ms}}},
		{"of another start", []Holding{{"p1", "2", 700}}, 1000, nil, [2]offered{none, none}},
		{"of no start", []Holding{{"p1", "", 700}}, 1000, nil, [2]offered{none, none}},
		{"of no instance", []Holding{{"", "1", 700}, {"gone", "1", 700}}, 1000, nil, [2]offered{none, none}},
		{"of a decode instance", []Holding{{"d0", "1", 700}}, 1000, nil, [2]offered{none, none}},
		{"of nothing", []Holding{{"p1", "1", 0}, {"p0", "1", -5}}, 1000, nil, [2]offered{none, none}},
		{"of a prompt without tokens", []Holding{{"p1", "1", 700}}, 0, nil, [2]offered{{delay: ms}, {3, 700, ms}}},
	} {
		w := paced(t)
		if got := w.tell(Hint{Tokens: row.tokens, PrefixHints: row.notes, Holds: row.holds}); got != row.want {
			t.Errorf("%s: told %v, want %v", row.name, got, row.want)
		}
	}
}

func TestPick_AHandBackEndsWithItsIncarnation(t *testing.T) {
	for name, end := range map[string]func(w *weighing, e *Engine){
		"restarted":   func(_ *weighing, e *Engine) { tells(e, "2") },
		"refused":     func(w *weighing, e *Engine) { e.Refused(); w.pass(health.DownFor) },
		"quarantined": func(_ *weighing, e *Engine) { e.Last().Quarantine() },
		"away": func(w *weighing, e *Engine) {
			w.Set(slices.DeleteFunc(slices.Clone(w.instances), func(i upstream.Instance) bool { return i.Name == e.Name }))
		},
	} {
		w := paced(t)
		hint := Hint{Tokens: 1000, PrefixHints: []Holding{{"p1", "1", 700}}, AllowQuarantined: true}
		if got := w.tell(hint)[1]; got.holds != 700 {
			t.Fatalf("%s: at first told %v", name, got)
		}
		end(w, w.p[1].Engine())
		if got := w.tell(hint)[1]; got.prefix != 0 || got.holds != 0 {
			t.Errorf("%s: told %v, want nothing of what was handed back", name, got)
		}
	}
}

func TestPick_DecodeIsToldNothingOfHandBacks(t *testing.T) {
	w := paced(t)
	w.named(upstream.RoleDecode, "p0")
	tells(w.Engine(upstream.RoleDecode, "p0"), "1")
	hint := Hint{Tokens: 1000, Holds: []Holding{{"p0", "1", 500}}, PrefixHints: []Holding{{"p0", "1", 700}}}
	_, done, err := w.Pick(upstream.RoleDecode, hint, func(e *Engine) bool { return e.Name != "p0" })
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if c := w.told.candidates["p0"]; c.Holds != 500 || c.Prefix != 0 {
		t.Errorf("told %+v", c)
	}
	if n := w.Engine(upstream.RoleDecode, "p0").Live().Queued; n != 1000 {
		t.Errorf("%d tokens are queued, want 1000", n)
	}
}

// What was computed as part of prompts and what was handed back overlap: the more of the two counts.
func TestPick_AHandBackAddsToWhatWasComputed(t *testing.T) {
	for _, row := range []struct {
		computed, note int
		want           offered
	}{
		{4, 900, offered{9, 900, 100 * time.Millisecond}},
		{9, 400, offered{9, 400, 100 * time.Millisecond}},
		{4, 400, offered{4, 400, 600 * time.Millisecond}},
		{0, 310, offered{4, 310, 690 * time.Millisecond}},
		{4, -5000, offered{4, 0, 600 * time.Millisecond}}, // of a store that others write
	} {
		w := paced(t)
		all := chain(1, 10, 0, 0)
		w.p[1].computed.Record(all[:row.computed])
		if got := w.tell(Hint{Tokens: 1000, Chain: all, PrefixHints: []Holding{{"p1", "1", row.note}}})[1]; got != row.want {
			t.Errorf("%d pieces of 100 tokens computed, %d tokens handed back: told %v, want %v", row.computed, row.note, got, row.want)
		}
	}
}

func TestPick_AHandBackToAnExcludedInstanceMarksNoOther(t *testing.T) {
	w := paced(t)
	w.tell(Hint{}) // both are candidates, p1 the second
	hint := Hint{Tokens: 1000, PrefixHints: []Holding{{"p0", "1", 700}}}
	_, done, err := w.Pick(upstream.RolePrefill, hint, func(e *Engine) bool { return e.Name == "p0" })
	if err != nil {
		t.Fatal(err)
	}
	done()
	if c := w.told.candidates["p1"]; len(w.told.candidates) != 1 || c.Holds != 0 || c.Prefix != 0 {
		t.Errorf("told %+v", w.told.candidates)
	}
}

// An engine is expected to compute what is left, also in the eyes of the picks that follow.
func TestPick_WhatWasHandedBackIsNotQueued(t *testing.T) {
	for _, row := range []struct {
		note Holding
		want int
	}{{Holding{"p0", "1", 700}, 300}, {Holding{"p0", "2", 700}, 1000}, {Holding{"p1", "1", 700}, 1000}, {Holding{"p0", "1", 5000}, 1}} {
		w := paced(t)
		w.p[0].computed.Record(chain(1, 10, 0, 0))
		e, done, err := w.Pick(upstream.RolePrefill, Hint{Tokens: 1000, PrefixHints: []Holding{row.note}}, nil)
		if err != nil || e.Name != "p0" {
			t.Fatalf("picked %v, %v", e, err)
		}
		if got := e.Live().Queued; got != row.want {
			t.Errorf("%v: %d tokens are queued, want %d", row.note, got, row.want)
		}
		done()
		if got := e.Live().Queued; got != 0 {
			t.Errorf("%v: %d tokens are left in the end", row.note, got)
		}
	}
}

// A note is a hint: which policies follow it, and that a favourite which is too busy gives way as it does for prefixes.
func TestPick_PoliciesFollowHandBacks(t *testing.T) {
	affinity := &routing.Affinity{Otherwise: &routing.LeastLoaded{}}
	for _, row := range []struct {
		name   string
		policy upstream.Policy
		key    string
		slow   bool // speeds are not known
		busy   int  // attempts on the noted instance, of a prompt as long each
		want   bool // both notes are followed
	}{
		{"auto", &routing.Auto{}, "", false, 0, true},
		{"auto, of a conversation", &routing.Auto{}, "k", false, 0, true},
		{"auto, without speeds", &routing.Auto{}, "k", true, 0, true},
		{"prefix", &routing.Prefix{}, "", false, 0, true},
		{"affinity", affinity, "k", false, 0, true},
		{"affinity, of no conversation", affinity, "", false, 0, true}, // by the delay
		{"least loaded", &routing.LeastLoaded{}, "k", false, 0, true},  // by the delay
		{"power of two", &routing.PowerOfTwo{}, "k", false, 0, true},   // by the delay
		{"least loaded, without speeds", &routing.LeastLoaded{}, "k", true, 0, false},
		{"round robin", &routing.RoundRobin{}, "k", false, 0, false},
		{"auto, busy", &routing.Auto{}, "", false, 2, false},
		{"prefix, busy", &routing.Prefix{}, "", false, 2, false},
		{"auto, busy, without speeds", &routing.Auto{}, "", true, 2, false},
		{"affinity, busy", affinity, "k", false, 2, true},
	} {
		followed := true
		for _, name := range []string{"p0", "p1"} {
			w := newWeighing(t)
			if !row.slow {
				w = paced(t)
			}
			for range row.busy {
				_, done, err := w.Pick(upstream.RolePrefill, Hint{Tokens: 1000}, func(e *Engine) bool { return e.Name != name })
				if err != nil {
					t.Fatal(err)
				}
				defer done()
			}
			w.picking.prefill = row.policy
			for range 2 { // also where equals are taken in turn
				hint := Hint{Key: row.key, Tokens: 1000, PrefixHints: []Holding{{name, "1", 900}}}
				e, done, err := w.Pick(upstream.RolePrefill, hint, nil)
				if err != nil {
					t.Fatal(err)
				}
				done()
				followed = followed && e.Name == name
			}
		}
		if followed != row.want {
			t.Errorf("%s: the note is followed: %t, want %t", row.name, followed, row.want)
		}
	}
}

// An engine that tells what it holds is believed, where the prompt is known.
func TestPick_AHandBackThatWasEvictedCountsForNothing(t *testing.T) {
	w := paced(t)
	p0, p1 := w.bothTold()
	prompt := promptOf(1, 8, 0, 0)
	next := promptOf(1, 8, 2, 4)
	hint := Hint{Tokens: len(next.IDs), Chain: next.Chain, PrefixHints: []Holding{{"p1", "1", 9*prefixindex.TokensPerPiece + 8}}}
	want := func(when string, prefix, holds int) {
		t.Helper()
		w.p[0].computed.Drop() // what was sent with the pick before
		if got := w.tell(hint)[1]; got.prefix != prefix || got.holds != holds {
			t.Errorf("%s: told %v, want %d pieces and %d tokens", when, got, prefix, holds)
		}
	}
	want("the prompt is not known", 10, 9*prefixindex.TokensPerPiece+8)
	w.Prefixes.IndexPrompt(prompt)
	want("nothing of it is held", 0, 0)
	for i := range 1 + prefixindex.MaxPieces/body.MaxChain { // a new generation begins
		w.p[0].computed.Record(chain(10+i, body.MaxChain, 0, 0))
	}
	want("nothing of it is held, and it is rarely asked for", 0, 0)
	first := computes(p1, prompt, 8*prefixindex.TokensPerPiece)
	computes(p0, prompt, 8*prefixindex.TokensPerPiece)
	want("its prompt is held", 10, 9*prefixindex.TokensPerPiece+8)
	hint.PrefixHints[0].Tokens, hint.Chain = 4*prefixindex.TokensPerPiece, append(prompt.Chain[:8:8], chain(3, 4, 0, 0)...)
	w.Prefixes.IndexPrompt(prefixindex.ComputedPrompt{Chain: hint.Chain, Bytes: 12 * body.ChainPiece, IDs: next.IDs, BlockSize: 16})
	want("more than was handed back is known, and not held", 8, 4*prefixindex.TokensPerPiece)
	hint.PrefixHints[0].Tokens, hint.Chain = 9*prefixindex.TokensPerPiece+8, next.Chain
	p1.Cache.Removed(first.Hashes[len(first.Hashes)-1:])
	want("the end of its prompt was evicted", 7, 0)
	p1.Cache.Lost()
	want("what is held is not known", 10, 9*prefixindex.TokensPerPiece+8)
}
