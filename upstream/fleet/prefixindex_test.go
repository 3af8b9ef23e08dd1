package fleet

import (
	"reflect"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/prefixindex"
)

// size is how much a prefix index remembers: pieces of both generations, incarnations that have computed any, engines whose cached blocks are
// known, and marks.
type size struct{ Pieces, Computed, Caches, Marks int }

func sizeOf(index *prefixindex.Index) size {
	in := reflect.ValueOf(index).Elem().FieldByName
	return size{in("young").Len() + in("old").Len(), in("computed").Len(), int(in("told").Int()), in("marks").Len()}
}

// chain is that of a prompt that has begun in some way and gone on in another.
func chain(begun, length int, on, more int) (hashes []uint64) {
	for i := range length {
		hashes = append(hashes, uint64(begun)<<32|uint64(i))
	}
	for i := range more {
		hashes = append(hashes, uint64(on)<<32|1<<31|uint64(i))
	}
	return hashes
}

// wantPrefixes checks what the policy is told of the two prefill instances, and picks one.
func (w *weighing) wantPrefixes(hashes []uint64, want [2]int, pick string) {
	w.t.Helper()
	_, done, err := w.Pick(upstream.RolePrefill, Hint{Chain: hashes}, func(e *Engine) bool { return pick != "" && e.Name != pick })
	if err != nil {
		w.t.Fatal(err)
	}
	done()
	for i, name := range []string{"p0", "p1"} {
		if c, told := w.told.candidates[name]; told && c.Prefix != want[i] {
			w.t.Errorf("%s: told of %d pieces, want %d", name, c.Prefix, want[i])
		}
	}
}

func TestPrefixes_TellWhoHasComputedTheBeginning(t *testing.T) {
	w := newWeighing(t)
	w.wantPrefixes(chain(1, 5, 0, 0), [2]int{}, "p1")
	w.wantPrefixes(chain(1, 5, 2, 3), [2]int{0, 5}, "")   // goes to the first, p0
	w.wantPrefixes(chain(1, 5, 2, 3), [2]int{8, 5}, "")   // which has computed all of it then
	w.wantPrefixes(chain(1, 5, 3, 3), [2]int{5, 5}, "p1") // another that begins like both
	w.wantPrefixes(chain(1, 4, 9, 9), [2]int{4, 4}, "p1")
	w.wantPrefixes(chain(7, 4, 0, 0), [2]int{}, "p1")
	w.wantPrefixes(nil, [2]int{}, "")
	if _, _, err := w.Pick(upstream.RoleDecode, Hint{Chain: chain(1, 5, 0, 0)}, nil); err != nil || w.told.candidates["d0"].Prefix != 0 {
		t.Errorf("decode was told %+v, %v", w.told.candidates["d0"], err)
	}
	tells(w.p[1].Engine(), "2") // with an empty cache
	w.wantPrefixes(chain(1, 5, 2, 3), [2]int{8, 0}, "")
	tells(w.p[1].Engine(), "1") // again, in the fleet's eyes
	w.wantPrefixes(chain(1, 5, 3, 3), [2]int{5, 0}, "p0")
	w.p[0].Engine().Refused()
	w.pass(health.DownFor)
	w.wantPrefixes(chain(1, 5, 3, 3), [2]int{}, "p0") // which incarnation is there is not known
	tells(w.p[0].Engine(), "1")
	w.wantPrefixes(chain(1, 5, 3, 3), [2]int{8, 0}, "p0")
	w.Set(w.instances[1:])
	w.Set(w.instances)
	tells(w.Engine(upstream.RolePrefill, "p0"), "1")
	w.wantPrefixes(chain(1, 5, 3, 3), [2]int{}, "p0")
}

func TestPrefixes_FourNewestAreIndexed(t *testing.T) {
	r := newRig(t)
	var told seen
	r.picking.prefill = &told
	engines := r.named(upstream.RolePrefill, "a", "b", "c", "d", "e", "f")
	hint := Hint{Chain: chain(1, 3, 0, 0)}
	for _, e := range engines {
		tells(e, "1")
		_, done, err := r.Pick(upstream.RolePrefill, hint, func(other *Engine) bool { return other != e })
		if err != nil {
			t.Fatal(err)
		}
		done()
	}
	if _, _, err := r.Pick(upstream.RolePrefill, hint, nil); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range engines {
		if told.candidates[e.Name].Prefix == 3 {
			got += e.Name
		}
	}
	if got != "cdef" {
		t.Errorf("told of %s, want the four newest", got)
	}
}

func TestPrefixes_AreBounded(t *testing.T) {
	w := newWeighing(t)
	common := chain(1, 2, 0, 0)
	for i := range 4 * prefixindex.MaxPieces / body.MaxChain {
		w.p[0].computed.Record(append(common, chain(10+i, body.MaxChain-2, 0, 0)...))
	}
	if n := sizeOf(w.Prefixes).Pieces; n > 2*(prefixindex.MaxPieces+body.MaxChain) {
		t.Errorf("%d pieces are remembered", n)
	}
	w.wantPrefixes(common, [2]int{2, 0}, "p1") // what is used is not forgotten
	w.wantPrefixes(chain(10, 3, 0, 0), [2]int{}, "p1")
}

func TestPrefixes_ShortenTheDelay(t *testing.T) {
	w := newWeighing(t)
	for _, p := range w.p {
		w.pass(time.Minute)
		p.Engine().LearnPrefill(1000, time.Second, false) // a millisecond each
	}
	hashes := chain(1, 10, 0, 0)
	w.wantPrefixes(hashes[:8], [2]int{}, "p0")
	for _, row := range []struct {
		hint Hint
		want [2]time.Duration
	}{
		{Hint{Tokens: 1000, Chain: hashes}, [2]time.Duration{200 * time.Millisecond, time.Second}},
		// Prefill reads 3000 tokens from decode, the beginning of those 4000; of the last 1000 it has 200.
		{Hint{Tokens: 1000, Chain: hashes, Holds: []Holding{{"d0", "1", 3000}}}, [2]time.Duration{800 * time.Millisecond, time.Second}},
		{Hint{Tokens: 1000, Chain: hashes, Holds: []Holding{{"d0", "1", 9000}}}, [2]time.Duration{time.Second, time.Second}},
		{Hint{Tokens: 1000, Chain: hashes[:8]}, [2]time.Duration{time.Millisecond, time.Second}},
		// Of a long prompt the chain tells the beginning only: eight pieces are some 2048 tokens.
		{Hint{Tokens: 100_000, Chain: append(hashes[:8:8], chain(2, body.MaxChain-8, 0, 0)...)}, [2]time.Duration{97952 * time.Millisecond, 100 * time.Second}},
	} {
		w.told = seen{}
		if _, err := w.Choose(upstream.RolePrefill, row.hint, nil); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"p0", "p1"} {
			if got := time.Duration(w.told.candidates[name].Delay).Round(time.Millisecond); got != row.want[i] {
				t.Errorf("%d tokens, %d pieces, %v: %s takes %v, want %v", row.hint.Tokens, len(row.hint.Chain), row.hint.Holds, name, got, row.want[i])
			}
		}
	}
}

// A pick may come to its end after its engine was restarted or removed.
func TestPrefixes_NothingIsKeptOfAnIncarnationThatIsOver(t *testing.T) {
	w := newWeighing(t)
	old, gone := w.p[0], w.p[1]
	tells(old.Engine(), "2")
	w.Set(w.instances[:1])
	old.computed.Record(chain(1, 3, 0, 0))
	gone.computed.Record(chain(1, 3, 0, 0))
	if n := sizeOf(w.Prefixes).Computed; n != 0 {
		t.Errorf("%d starts are kept", n)
	}
}

// An engine that was away for a moment, and had a turn all the while, is the engine that it was. What it has computed is told anew.
func TestPrefixes_EngineThatComesBackIsIndexedAgain(t *testing.T) {
	w := newWeighing(t)
	prompt := chain(1, 5, 0, 0)
	w.wantPrefixes(prompt, [2]int{}, "p0")
	_, done, err := w.Pick(upstream.RolePrefill, Hint{}, func(e *Engine) bool { return e.Name != "p0" })
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	w.Set(w.instances[1:])
	w.Set(w.instances)
	w.wantPrefixes(prompt, [2]int{}, "p0")
	w.wantPrefixes(prompt, [2]int{5, 0}, "p0")
}

// What was handed back to another incarnation than the one that computed it is found at either.
func TestComputed_IsFoundByTheNextTurn(t *testing.T) {
	w := newWeighing(t)
	prompt := chain(1, 5, 0, 0)
	w.wantPrefixes(prompt, [2]int{}, "p0")
	w.p[1].computed.Record(prompt)
	next := chain(1, 5, 2, 3)
	w.wantPrefixes(next, [2]int{5, 5}, "p1")
	tells(w.p[1].Engine(), "2")
	w.p[1].computed.Record(prompt) // by a leg that comes to its end now
	w.p[1].Engine().forget()
	w.p[1].Engine().Fresh().computed.Record(prompt)
	w.p[0].computed.Record(nil)
	w.wantPrefixes(next, [2]int{5, 0}, "")
	if n := sizeOf(w.Prefixes).Computed; n != 1 {
		t.Errorf("%d starts are kept, want the one", n)
	}
}
