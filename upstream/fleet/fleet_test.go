package fleet

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/pairs"
)

func (r *rig) pick(exclude ...string) string {
	r.t.Helper()
	e, release, err := r.Pick(upstream.RolePrefill, Hint{}, excluding(exclude...))
	if err != nil {
		r.t.Fatalf("Pick: %v", err)
	}
	release()
	return e.Name
}

func excluding(names ...string) func(*Engine) bool {
	return func(e *Engine) bool {
		for _, name := range names {
			if e.Name == name {
				return true
			}
		}
		return false
	}
}

func TestFleet_NeverPicksAnExcludedEngine(t *testing.T) {
	r := newRig(t)
	r.named(upstream.RolePrefill, "a", "b")
	if got := r.pick("a"); got != "b" {
		t.Errorf("picked %s, want b", got)
	}
	if _, _, err := r.Pick(upstream.RolePrefill, Hint{}, excluding("a", "b")); !errors.Is(err, upstream.ErrNoInstance) {
		t.Errorf("all excluded: %v, want ErrNoInstance", err)
	}
	if _, _, err := r.Pick(upstream.RoleDecode, Hint{}, nil); !errors.Is(err, upstream.ErrNoInstance) {
		t.Errorf("no engine of that role: %v, want ErrNoInstance", err)
	}
}

func TestFleet_AvoidsARefusingEngineForAMoment(t *testing.T) {
	r := newRig(t)
	a := r.named(upstream.RolePrefill, "a", "b")[0]
	a.Refused()
	if got := r.pick(); got != "b" {
		t.Errorf("picked %s while a refuses, want b", got)
	}
	if a.Reachable() || r.Up(upstream.RolePrefill) != 1 {
		t.Errorf("a is shown as reachable while it refuses")
	}
	if got := r.pick("b"); got != "a" {
		t.Errorf("picked %s with b excluded, want a although it is down", got)
	}
	r.pass(health.DownFor)
	if got := r.pick(); got != "a" {
		t.Errorf("picked %s after the pause, want a", got)
	}
}

func TestFleet_ProbeAndAnswerBringAnEngineBack(t *testing.T) {
	r := newRig(t)
	a := r.named(upstream.RolePrefill, "a")[0]
	up := func() int { return r.Up(upstream.RolePrefill) }
	a.Health.Probed(false)
	if up() != 1 {
		t.Error("an engine counts as down after one late probe")
	}
	a.Health.Probed(false)
	if up() != 0 {
		t.Error("an engine whose probes fail counts as up")
	}
	a.Health.Answered()
	if up() != 1 {
		t.Error("an engine that answers a leg counts as down")
	}
	a.Refused()
	a.Health.Probed(true)
	if up() != 1 {
		t.Error("an engine whose probe is good counts as down")
	}
}

func TestFleet_KeepsTheEngineOfAnUnchangedInstance(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b")
	a, b := engines[0], engines[1]
	_, release, err := r.Pick(upstream.RolePrefill, Hint{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Refused()
	r.Set([]upstream.Instance{*a.Instance(), {Name: "c", Role: upstream.RolePrefill}})
	if r.Engine(upstream.RolePrefill, "a") != a {
		t.Error("a is another engine")
	}
	if a.Reachable() || !r.Engine(upstream.RolePrefill, "c").Reachable() || b.Reachable() || r.Engine(upstream.RolePrefill, "b") != nil {
		t.Error("want a still down, c new and up, b gone")
	}
	if n := a.Live().InFlight; n != 1 {
		t.Errorf("in flight after a change = %d, want 1", n)
	}
	release()
	if n := a.Live().InFlight; n != 0 {
		t.Errorf("in flight after release = %d, want 0", n)
	}
	changed := *a.Instance()
	changed.BaseURL = "http://elsewhere"
	r.Set([]upstream.Instance{changed})
	if got := r.Engine(upstream.RolePrefill, "a"); got == a || !got.Reachable() {
		t.Error("an instance at another address is the same engine")
	}
	b.Refused() // a leg to one that has gone
	b.Health.Answered()
	if b.Reachable() {
		t.Error("an engine that has gone is reachable")
	}
}

func TestFleet_ListsEnginesAsConfigured(t *testing.T) {
	r := newRig(t)
	r.named(upstream.RoleDecode, "c", "a", "b")
	got := ""
	for _, e := range r.Engines(upstream.RoleDecode) {
		got += e.Name
	}
	if got != "cab" || r.Engine(upstream.RoleDecode, "a").Name != "a" || r.Engine(upstream.RolePrefill, "a") != nil {
		t.Errorf("got %q, want cab, and no prefill engine", got)
	}
}

// Locks nest in one order, and nothing is read without one.
func TestFleet_ServesManyWhileItChanges(t *testing.T) {
	r := newRig(t)
	r.named(upstream.RolePrefill, "a", "b")
	r.named(upstream.RoleDecode, "c", "d")
	hint := Hint{Key: "k", Holds: []Holding{{"c", "1", 5}, {"d", "2", 7}}}
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
		for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
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
