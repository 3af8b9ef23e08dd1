package discovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"carryover/upstream"
)

func TestRegistry_AddAndRemoveHaveSetWhenTheyReturn(t *testing.T) {
	registry := &Registry{}
	must(t, registry.Add(instance("before:1")))
	w := watch(t, registry)
	w.want(t, "before:1")
	if err := registry.Add(upstream.Instance{BaseURL: "HTTP://D:1/", Role: upstream.RoleDecode}); err != nil {
		t.Fatal(err)
	}
	if len(w.lists) != 1 {
		t.Fatal("Add returned before set was called")
	}
	w.want(t, "before:1 d:1")
	if !registry.Remove(upstream.RoleDecode, "before:1") || len(w.lists) != 1 {
		t.Fatal("Remove returned before set was called")
	}
	w.want(t, "d:1")
	if registry.Remove(upstream.RoleDecode, "before:1") || registry.Remove(upstream.RolePrefill, "d:1") {
		t.Error("Remove = true for an instance that is not registered")
	}
	w.quiet(t)
	if got := registry.all; len(got) != 1 || got[0].BaseURL != "http://d:1" {
		t.Errorf("List = %+v", got)
	}
}

func TestRegistry_AnInstanceRegistersAnew(t *testing.T) {
	registry := &Registry{}
	w := watch(t, registry)
	w.want(t, "")
	first, second := instance("a", "10.0.0.1:8000"), instance("b", "10.0.0.2:8000")
	for _, i := range []upstream.Instance{first, second, first} {
		must(t, registry.Add(i))
	}
	w.want(t, "a")
	w.want(t, "a b")
	w.quiet(t) // the third time changed nothing
	must(t, registry.Add(instance("a", "10.0.0.3:8000")))
	w.want(t, "a b")
	if got := registry.all[0].BaseURL; got != "http://10.0.0.3:8000" {
		t.Errorf("a is at %s, want its new address", got)
	}
}

func TestRegistry_Refuses(t *testing.T) {
	registry := &Registry{}
	must(t, registry.Add(instance("a", "h:80")))
	for name, tc := range map[string]struct {
		instance upstream.Instance
		want     string
	}{
		"no role":                            {upstream.Instance{Name: "x", BaseURL: "http://x"}, "want prefill or decode"},
		"a path":                             {instance("x", "h/path"), "want http://host"},
		"a name with a line feed":            {instance("x\n", "x"), "printable"},
		"the address of another":             {instance("b", "h"), "registered under another name (a)"},
		"a negative weight":                  {upstream.Instance{Name: "x", BaseURL: "http://x", Role: upstream.RoleDecode, Weight: -1}, "not be negative"},
		"a rank of an unranked one":          {upstream.Instance{Name: "x", BaseURL: "http://x", Role: upstream.RoleDecode, Rank: 1}, "rank 1"},
		"its own address, written otherwise": {instance("a", "h"), ""},
	} {
		err := registry.Add(tc.instance)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: Add = %v, want %q", name, err, tc.want)
		}
	}
	if err := registry.Add(instance("b", "h")); !errors.Is(err, ErrTaken) {
		t.Errorf("got %v, want ErrTaken", err)
	}
	// The other role, and another rank, are other places.
	must(t, registry.Add(upstream.Instance{Name: "a", BaseURL: "http://h:80", Role: upstream.RolePrefill}))
	for _, rank := range Ranks(instance("r", "h:80"), 2) {
		must(t, registry.Add(rank))
	}
}

func TestRegistry_IsBounded(t *testing.T) {
	registry := &Registry{}
	for n := range MaxRegistered {
		must(t, registry.Add(instance(fmt.Sprintf("d-%d:80", n))))
	}
	if err := registry.Add(instance("more:80")); !errors.Is(err, ErrFull) {
		t.Errorf("Add = %v, want ErrFull", err)
	}
	if err := registry.Add(instance("d-7:80", "d-7:81")); err != nil {
		t.Errorf("an instance that is registered may move: %v", err)
	}
	registry.Remove(upstream.RoleDecode, "d-0:80")
	must(t, registry.Add(instance("more:80")))
}

func TestRegistry_ManyAtOnce(t *testing.T) {
	registry := &Registry{}
	w := watch(t, registry)
	w.want(t, "")
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for round := range 50 {
				name := fmt.Sprintf("d-%d-%d:80", n, round)
				if err := registry.Add(instance(name)); err != nil {
					t.Error(err)
				}
				if round%2 == 0 && !registry.Remove(upstream.RoleDecode, name) {
					t.Errorf("%s is not there", name)
				}
			}
		})
	}
	all.Wait()
	var last []upstream.Instance
	for range 8*50 + 8*25 {
		last = <-w.lists
	}
	w.quiet(t)
	if len(last) != 8*25 || len(registry.all) != 8*25 {
		t.Errorf("%d instances were set last, %d listed, want %d", len(last), len(registry.all), 8*25)
	}
}

func TestListed_SetsTheListOnceAndEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	listed := &Listed{}
	listed.Replace([]upstream.Instance{{Name: "p-1"}, {Name: "p-2"}})
	err := listed.Watch(ctx, func(all []upstream.Instance) {
		calls++
		if len(all) != 2 {
			t.Errorf("got %d instances, want 2", len(all))
		}
		cancel()
	})
	if err != nil || calls != 1 {
		t.Errorf("Watch = %v after %d calls, want nil after 1", err, calls)
	}
}

func TestListed_ReplaceHasSetWhenItReturns(t *testing.T) {
	listed := &Listed{}
	w, second := watch(t, listed), watch(t, listed)
	w.want(t, "")
	second.want(t, "")
	given := []upstream.Instance{instance("a"), instance("b")}
	listed.Replace(given)
	for _, w := range []*watched{w, second} {
		if len(w.lists) != 1 {
			t.Fatalf("%d lists set when Replace returns, want 1", len(w.lists))
		}
		w.want(t, "a b")
	}
	given[0].Name = "changed"
	listed.Replace([]upstream.Instance{instance("a"), instance("b")})
	w.quiet(t)
	listed.Replace(nil)
	w.want(t, "")
}

func TestListed_SetIsNotCalledOnceWatchHasReturned(t *testing.T) {
	listed := &Listed{}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	must(t, listed.Watch(ctx, func([]upstream.Instance) { calls++; cancel() }))
	listed.Replace([]upstream.Instance{instance("a")})
	if calls != 1 {
		t.Errorf("set was called %d times, want once", calls)
	}
}

func TestRanks(t *testing.T) {
	one := instance("d")
	if got := Ranks(one, 0); len(got) != 1 || got[0] != one {
		t.Errorf("Ranks(0) = %+v, want the instance as it is", got)
	}
	one.KVEvents = "tcp://h:5557"
	got := Ranks(one, 2)
	if got[0].KVEvents != "tcp://h:5557" || got[1].KVEvents != "tcp://h:5558" {
		t.Errorf("events of ranks at %s and %s, want at ports behind one another", got[0].KVEvents, got[1].KVEvents)
	}
	one.KVEvents = "none"
	if at := Ranks(one, 2)[1].KVEvents; at != "none" {
		t.Errorf("events at %q, want them where the configuration says", at)
	}
	if names(got) != "d@0 d@1" {
		t.Fatalf("names %s", names(got))
	}
	for rank, i := range got {
		if i.Rank != rank || !i.Ranked || i.BaseURL != one.BaseURL || i.Role != one.Role {
			t.Errorf("rank %d is %+v", rank, i)
		}
	}
}
