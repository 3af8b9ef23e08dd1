package fleet

import (
	"fmt"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/routing"
)

// large is a fleet of a thousand instances of each role, and a hint of a turn whose conversation 200 of decode hold, and of which
// as many branches as are kept were handed back.
func large(tb testing.TB) (f *Fleet, hint Hint) {
	tb.Helper()
	f = New(Config{Prefill: &routing.Auto{}, Decode: &routing.Auto{}})
	var all []upstream.Instance
	for i := range 1000 {
		for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
			url := fmt.Sprintf("http://10.0.%d.%d:8000", i/250, i%250)
			all = append(all, upstream.Instance{Role: role, Name: url[len("http://"):], BaseURL: url})
		}
	}
	f.Set(all)
	for i := range 1000 {
		for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
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

// BenchmarkPick is what a turn waits for one pick among a thousand instances of each role.
func BenchmarkPick(b *testing.B) {
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, row := range []struct {
			name    string
			exclude func(*Engine) bool
		}{{"all", nil}, {"excluding", (*Engine).Quarantined}} {
			b.Run(role.String()+"/"+row.name, func(b *testing.B) {
				f, hint := large(b)
				b.ReportAllocs()
				for b.Loop() {
					_, done, err := f.Pick(role, hint, row.exclude)
					if err != nil {
						b.Fatal(err)
					}
					done()
				}
			})
		}
	}
}

func TestPick_AllocatesOnce(t *testing.T) {
	f, hint := large(t)
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for name, exclude := range map[string]func(*Engine) bool{"all": nil, "excluding": (*Engine).Quarantined} {
			if n := testing.AllocsPerRun(100, func() {
				_, done, err := f.Pick(role, hint, exclude)
				if err != nil {
					t.Fatal(err)
				}
				done()
			}); n > 1 {
				t.Errorf("%v, %s: a pick allocates %v times, want once", role, name, n)
			}
		}
	}
}
