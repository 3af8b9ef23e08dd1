package fleet

import (
	"fmt"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// reached counts the values that a fleet holds on to: what pointers point at, the entries
// of maps and the elements of lists.
func reached(f *Fleet) int {
	seen := map[unsafe.Pointer]bool{}
	n := 0
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if _, ours := reflect.TypeAssert[*upstream.Client](zero(v)); ours || v.IsNil() || seen[v.UnsafePointer()] {
				return
			}
			seen[v.UnsafePointer()] = true
			n++
			walk(v.Elem())
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i))
			}
		case reflect.Slice, reflect.Array:
			for i := range v.Len() {
				n++
				walk(v.Index(i))
			}
		case reflect.Map:
			for entry := v.MapRange(); entry.Next(); {
				n++
				walk(entry.Key())
				walk(entry.Value())
			}
		case reflect.String:
			n += v.Len()
		}
	}
	walk(reflect.ValueOf(f))
	return n
}

// zero is the zero value of the type of a field that can't be read.
func zero(v reflect.Value) reflect.Value { return reflect.Zero(v.Type()) }

// learnAll has everything learnt that can be learnt of a prefill and a decode incarnation,
// without asking.
func (r *rig) learnAll(p, d *Incarnation) {
	for _, s := range []*Incarnation{p, d} {
		s.Parity.Learn("", "m", "f", true)
		s.PlugIn.Learn(true)
		s.Engine().LearnPrefill(10, time.Second, false)
		s.computed.Record([]uint64{1, 2, 3})
		s.Engine().AnswerIDs.Foreign("leg", "chatcmpl-leg")
		s.Silence.SentNothing()
		s.Judge("probe")
		s.Engine().Fresh().Silence.SentNothing()
	}
	p.Quarantine()
	ps := p.PairWith(d)
	ps.Begin("")
	ps.End(pairs.Unanswered, "")
	ps.ExchangedKV()
	ps.ReleaseFailed(true)
	for _, e := range []*Engine{p.Engine(), d.Engine()} {
		e.Refused()
		e.Fresh().Silence.SentNothing()
	}
}

func TestFleet_NothingGrowsWithRestarts(t *testing.T) {
	r := newRig(t)
	prefill, decode := r.named(upstream.RolePrefill, "p", "q"), r.named(upstream.RoleDecode, "d", "e")
	for _, e := range append(prefill, decode...) {
		for range 100 { // legs of all incarnations are remembered
			tells(e, "0").Engine().LearnPrefill(10, time.Second, false)
		}
	}
	was := 0
	for restart := range 10_000 {
		// Prefill is restarted every seventh time, so that pairs see each side change alone.
		id, rarely := fmt.Sprint(10_000+restart), fmt.Sprint(10_000+restart/7) // of equal length
		for i := range prefill {
			for j := range decode {
				if (restart+i+j)%2 == 0 {
					r.learnAll(tells(prefill[i], rarely), tells(decode[j], id))
				}
			}
		}
		if restart%1400 != 27 { // in the same phase of both
			continue
		}
		if is := reached(r.Fleet); was == 0 {
			was = is
		} else if is != was {
			t.Fatalf("after %d restarts the fleet reaches %d values, at first it was %d", restart, is, was)
		}
	}
}
