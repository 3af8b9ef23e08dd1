package fleet

import (
	"fmt"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/prefixindex"
	"carryover/upstream/routing"
)

// large is a fleet of a thousand instances of each role, and a hint of a turn whose conversation 200 of decode hold, and of which
// as many branches as are kept were handed back.
func large(tb testing.TB) (f *Fleet, hint Hint) {
	tb.Helper()
	f = New(Config{Prefill: &routing.Auto{}, Decode: &routing.Auto{}})
	var all []upstream.Instance
	for i := range 1000 {
		for _, role := range bothRoles {
			url := fmt.Sprintf("http://10.0.%d.%d:8000", i/250, i%250)
			all = append(all, upstream.Instance{Role: role, Name: url[len("http://"):], BaseURL: url})
		}
	}
	f.Set(all)
	for i := range 1000 {
		for _, role := range bothRoles {
			e := f.Engines(role)[i]
			e.served.Store(f.shared([]facts.Model{{ID: "model"}, {ID: "other"}}))
			e.reads(Load{Use: facts.Use{Running: 3, Waiting: 1, Usage: 0.5}, Others: 2, Read: f.Now()})
			tells(e, fmt.Sprint(1_000_000+i))
			if role == upstream.RolePrefill {
				e.Last().Engine().LearnPrefill(1000, 1_000_000, false)
			}
		}
	}
	for i := range 200 {
		e := f.Engines(upstream.RoleDecode)[i*5]
		hint.Holds = append(hint.Holds, Holding{Instance: e.Name, Incarnation: e.Last().ID(), Tokens: 1000 + i})
	}
	for i := range 4 {
		e := f.Engines(upstream.RolePrefill)[i*200]
		hint.PrefixHints = append(hint.PrefixHints, Holding{Instance: e.Name, Incarnation: e.Last().ID(), Tokens: 1100 + i})
	}
	hint.Key, hint.Model, hint.Tokens = "2f9ac1d3b4e5f60718293a4b5c6d7e8f", "model", 500
	for i := range 64 {
		hint.Chain = append(hint.Chain, uint64(i)*0x9e3779b97f4a7c15)
	}
	return f, hint
}

// eachPick does one pick among a thousand instances of each role, of all of them and but for some.
func eachPick(tb testing.TB, run func(name string, pick func())) {
	tb.Helper()
	f, hint := large(tb)
	for _, role := range bothRoles {
		for name, exclude := range map[string]func(*Engine) bool{"all": nil, "excluding": (*Engine).Quarantined} {
			run(role.String()+"/"+name, func() {
				_, done, err := f.Pick(role, hint, exclude)
				must(tb, err)
				done()
			})
		}
	}
}

// BenchmarkPick is what a turn waits for one pick.
func BenchmarkPick(b *testing.B) {
	eachPick(b, func(name string, pick func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				pick()
			}
		})
	})
}

func TestPick_AllocatesOnce(t *testing.T) {
	eachPick(t, func(name string, pick func()) {
		if n := testing.AllocsPerRun(100, pick); n > 1 {
			t.Errorf("%s: a pick allocates %v times, want once", name, n)
		}
	})
}

func TestTakesHandBack_AllocatesNothing(t *testing.T) {
	f, _ := large(t)
	e := f.Engines(upstream.RolePrefill)[0]
	if n := testing.AllocsPerRun(100, func() { e.TakesHandBack() }); n != 0 || !e.TakesHandBack() {
		t.Errorf("it allocates %v times", n)
	}
}

// Where more engines hold the same than a pick looks at, all get their turn, and the one that holds more is always among them. All hold the
// beginning of the prompt, each tenth holds half of it, and one all of it.
func TestCachedBlocks_ManyEnginesCacheTheSame(t *testing.T) {
	f, hint := large(t)
	engines := f.Engines(upstream.RolePrefill)
	ids := make([]uint32, len(hint.Chain)*prefixindex.TokensPerPiece)
	for i := range ids {
		ids[i] = uint32(i) * 31
	}
	for i, e := range engines {
		e.Cache.Started()
		n := len(ids) / 8
		switch {
		case i == 500:
			n = len(ids)
		case i%10 == 0:
			n = len(ids) / 2
		}
		e.Cache.Stored(blocksOf(ids[:n], 16))
	}
	f.Prefixes.IndexPrompt(prefixindex.ComputedPrompt{Chain: hint.Chain, Bytes: len(hint.Chain) * body.ChainPiece, IDs: ids, BlockSize: 16, Model: "model"})
	var seen seen
	f.picking.prefill = &seen
	credited := map[string]bool{}
	for range 100 {
		_, done, err := f.Pick(upstream.RolePrefill, hint, nil)
		must(t, err)
		done()
		n := 0
		for name, c := range seen.candidates {
			if c.Prefix > 0 {
				n++
				credited[name] = true
			}
		}
		if n < prefixindex.MaxCredits || n > prefixindex.MaxCredits+1 { // and the one that the prompt is sent to
			t.Fatalf("%d engines are looked at, want %d", n, prefixindex.MaxCredits)
		}
		if got := seen.candidates[engines[500].Name].Prefix; got != len(hint.Chain) {
			t.Fatalf("the one that holds all of the prompt counts as having %d pieces of %d", got, len(hint.Chain))
		}
	}
	if len(credited) < len(engines)*9/10 {
		t.Errorf("%d engines of %d got their turn", len(credited), len(engines))
	}
}
