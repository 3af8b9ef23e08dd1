package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"
	"weak"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
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
			if v.Type() == reflect.TypeFor[*upstream.Client]() || v.IsNil() || seen[v.UnsafePointer()] {
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
	prefill, decode := r.named("p0", "p1"), r.named("d0", "d1")
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

// Instances come and go: what a fleet holds on to, what the heap has and which goroutines run is as at the start.
func TestFleet_NothingGrowsWithInstances(t *testing.T) {
	r := newRig(t)
	r.play("add p0 d0; tell 1")
	p, d, kept := r.told["p0"], r.told["d0"], r.instances
	churn := func(i int) (e weak.Pointer[Engine]) {
		id := fmt.Sprintf("%05d", i)
		next := append(kept[:len(kept):len(kept)], upstream.Instance{Role: upstream.RolePrefill, Name: "p" + id, BaseURL: "http://10.0.0.9"},
			upstream.Instance{Role: upstream.RoleDecode, Name: "d" + id, BaseURL: "http://10.0.0.9"})
		r.Set(next)
		np, nd := r.Engine(upstream.RolePrefill, "p"+id), r.Engine(upstream.RoleDecode, "d"+id)
		r.learnAll(tells(np, id), tells(nd, id))
		p.PairWith(tells(nd, id)).Begin("")
		tells(np, id).PairWith(d).Begin("")
		for _, e := range []*Engine{np, nd} {
			models := []facts.Model{{ID: "m" + id}}
			e.models.list = models
			e.served.Store(r.shared(models))
			hint := Hint{Key: id, Model: "m" + id, AllowQuarantined: true, Chain: []uint64{1, 2, 3}, Holds: []Holding{{"d" + id, id, 5}}}
			_, done, err := r.Pick(e.Role, hint, func(other *Engine) bool { return other != e })
			must(t, err)
			if i%2 == 0 {
				defer done() // after it has gone
			} else {
				done()
			}
		}
		r.Set(kept)
		return weak.Make(nd) // which was picked last
	}
	heap := func() (bytes uint64) {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for i := range 200 {
		churn(i)
	}
	goroutines := runtime.NumGoroutine()
	r.forgetGone()
	values, bytes := reached(r.Fleet), heap()
	var last weak.Pointer[Engine]
	for i := range 4_000 {
		last = churn(i)
	}
	r.forgetGone()
	if n := reached(r.Fleet); n != values {
		t.Errorf("the fleet reaches %d values, at first it was %d", n, values)
	}
	if now := heap(); now > bytes+bytes/10+1<<20 {
		t.Errorf("the heap has %d bytes, at first it was %d", now, bytes)
	}
	if last.Value() != nil {
		t.Error("an engine that has gone is held on to")
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines run, at first it was %d", n, goroutines)
	}
	runtime.KeepAlive(r.Fleet)
}

// forgetGone ends what is remembered, within bounds, of engines that have gone.
func (r *rig) forgetGone() {
	r.pass(unsetKVTTL)
	r.away = nil
	r.Set(r.instances)
}

// The same with engines that are asked: what was begun for one that has gone comes to its end.
func TestFleet_NothingRunsOnForEnginesThatHaveGone(t *testing.T) {
	r := newRig(t)
	url := r.fake("d0").Instance().BaseURL
	r.play("d0 says start=5; d0 lists m")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 100 {
		r.Set([]upstream.Instance{{Role: upstream.RoleDecode, Name: fmt.Sprint(i), BaseURL: url}})
		r.probeAll(ctx)
		e := r.Engines(upstream.RoleDecode)[0]
		r.Set(nil)
		<-e.listModels(ctx)
		if e.Reachable() {
			t.Fatal("an engine that has gone is reachable")
		}
	}
	r.cfg.Client.Close() // goleak sees what is left
}

// allStopped is what Stopped means, without numbers.
func allStopped(prefills, decodes []*Incarnation, now time.Time) bool {
	for _, p := range prefills {
		for _, d := range decodes {
			if !p.Known() || !d.Known() || !p.known(d).Stopped() {
				return false
			}
		}
	}
	return len(prefills) > 0 && len(decodes) > 0
}

// The numbers of stopped pairs spare the walk, and change nothing of what it finds.
func TestStops_TheNumbersHideNothing(t *testing.T) {
	w := newRig(t)
	w.play("add p0 p1 d0 d1; tell 1")
	random := rand.New(rand.NewPCG(1, 2))
	engines := func(role upstream.Role) []*Engine { return w.Engines(role) }
	lasts := func(role upstream.Role) (all []*Incarnation) {
		for _, e := range engines(role) {
			all = append(all, e.Last())
		}
		return all
	}
	found := 0
	for step := range 20_000 {
		p, d := engines(upstream.RolePrefill)[random.IntN(2)], engines(upstream.RoleDecode)[random.IntN(2)]
		switch ps := p.Last().PairWith(d.Last()); random.IntN(12) {
		case 0:
			tells(p, fmt.Sprint(1+random.IntN(3)))
		case 1:
			tells(d, fmt.Sprint(1+random.IntN(3)))
		case 2:
			w.Set(w.instances[1:])
			w.Set(w.instances)
		case 3:
			w.pass(time.Duration(random.IntN(90)) * time.Second)
		case 4:
			p.Refused()
		case 5:
			if ps.Begin("") == pairs.Trial {
				ps.End(pairs.Answered, "")
			}
		default:
			if ps.Begin("") == pairs.Trial {
				ps.End(pairs.Unanswered, "")
			}
		}
		holds := Hint{Holds: []Holding{{"d0", "1", 1}, {"d1", "1", 1}}}
		for _, role := range bothRoles {
			if _, done, err := w.Pick(role, holds, nil); err != nil {
				t.Fatal(err)
			} else {
				done()
			}
			for _, e := range engines(role) {
				c, listed := w.seen.candidates[e.Name]
				if !listed {
					continue // down
				}
				want := false
				if role == upstream.RoleDecode {
					want = allStopped(lasts(upstream.RolePrefill), []*Incarnation{e.Last()}, w.Now())
				} else {
					var holders []*Incarnation
					for _, d := range engines(upstream.RoleDecode) {
						if last := d.Last(); d.up() && last.ID() == "1" {
							holders = append(holders, last)
						}
					}
					want = allStopped([]*Incarnation{e.Last()}, holders, w.Now())
				}
				if want {
					found++
				}
				if c.Stopped != want {
					t.Fatalf("step %d: %s is told to be stopped: %t, want %t", step, e.Name, c.Stopped, want)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d were stopped: this test shows nothing", found)
	}
	w.Set(nil)
	if n := w.stops.Load(); n != 0 {
		t.Errorf("%d links count as stopped in an empty fleet", n)
	}
}

// Locks nest in one order, and nothing is read without one.
func TestFleet_ServesManyWhileItChanges(t *testing.T) {
	r := newRig(t)
	r.named("p0", "p1", "d0", "d1")
	hint := Hint{Key: "k", Holds: []Holding{{"d0", "1", 5}, {"d1", "2", 7}}}
	all := r.instances
	var group sync.WaitGroup
	each := func(act func(i int)) {
		group.Go(func() {
			for i := range 500 {
				act(i)
			}
		})
	}
	each(func(i int) { r.Set(all[i%2 : 3+i%2]) })
	each(func(i int) {
		for _, role := range bothRoles {
			for _, e := range r.Engines(role) {
				tells(e, strconv.Itoa(1+i%3)).Judge("probe")
				if i%7 == 0 {
					e.Refused()
				}
			}
		}
	})
	for range 2 {
		each(func(i int) {
			decode, release, err := r.Pick(upstream.RoleDecode, hint, nil)
			if err != nil {
				return
			}
			defer release()
			prefill, again, err := r.Pick(upstream.RolePrefill, hint, (*Engine).Quarantined)
			if err != nil {
				return
			}
			defer again()
			p, d := prefill.Last(), decode.Last()
			ps := p.PairWith(d)
			if v := ps.Begin(""); v == pairs.Trial || v == pairs.Proven {
				ps.End(pairs.Outcome(i%4), "")
			}
			ps.ExchangedKV()
			if i%50 == 0 {
				ps.ReleaseFailed(true)
				p.Quarantine()
			}
		})
	}
	group.Wait()
}
