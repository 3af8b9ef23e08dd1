package discovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"carryover/logtest"
	"carryover/upstream"
)

// A step adds or removes a decode instance; the list is set when that returns.
func TestRegistry(t *testing.T) {
	for name, script := range map[string]string{
		"add and remove": "add before:1; watch; want before:1; add =HTTP://D:1/; now before:1 d:1; remove before:1; now d:1; remove before:1 absent; quiet",
		"an instance registers anew": "watch; want ; add a=10.0.0.1:8000; now a=http://10.0.0.1:8000; add b=10.0.0.2:8000; now a=http://10.0.0.1:8000 b=http://10.0.0.2:8000;" +
			"add a=10.0.0.1:8000; quiet; add a=10.0.0.3:8000; now a=http://10.0.0.3:8000 b=http://10.0.0.2:8000",
	} {
		t.Run(name, func(t *testing.T) {
			registry := &Registry{}
			play(t, script, registry, &logtest.Log{}, map[string]func(string){
				"add": func(text string) {
					i := instance(text)
					i.BaseURL = strings.Replace(i.BaseURL, "http://HTTP", "HTTP", 1)
					must(t, registry.Add(i))
				},
				"remove": func(text string) {
					name, absent := strings.CutSuffix(text, " absent")
					if registry.Remove(upstream.RoleDecode, name) == absent || registry.Remove(upstream.RolePrefill, name) {
						t.Errorf("remove %s: found although absent %t, or in the other role", name, absent)
					}
				},
			})
		})
	}
}

func TestRegistry_Refuses(t *testing.T) {
	registry := &Registry{}
	must(t, registry.Add(instance("a=h:80")))
	for name, tc := range map[string]struct {
		instance upstream.Instance
		want     string
	}{
		"no role":                            {upstream.Instance{Name: "x", BaseURL: "http://x"}, "want prefill or decode"},
		"a path":                             {instance("x=h/path"), "want http://host"},
		"a name with a line feed":            {instance("x\n=x"), "printable"},
		"the address of another":             {instance("b=h"), "registered under another name (a)"},
		"a negative weight":                  {upstream.Instance{Name: "x", BaseURL: "http://x", Role: upstream.RoleDecode, Weight: -1}, "not be negative"},
		"a rank of an unranked one":          {upstream.Instance{Name: "x", BaseURL: "http://x", Role: upstream.RoleDecode, Rank: 1}, "rank 1"},
		"its own address, written otherwise": {instance("a=h"), ""},
	} {
		err := registry.Add(tc.instance)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: Add = %v, want %q", name, err, tc.want)
		}
	}
	if err := registry.Add(instance("b=h")); !errors.Is(err, ErrTaken) {
		t.Errorf("got %v, want ErrTaken", err)
	}
	// The other role, and another rank, are other places.
	must(t, registry.Add(upstream.Instance{Name: "a", BaseURL: "http://h:80", Role: upstream.RolePrefill}))
	for _, rank := range Ranks(instance("r=h:80"), 2) {
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
	must(t, registry.Add(instance("d-7:80=d-7:81"))) // an instance that is registered may move
	registry.Remove(upstream.RoleDecode, "d-0:80")
	must(t, registry.Add(instance("more:80")))
}

func TestRegistry_ManyAtOnce(t *testing.T) {
	registry := &Registry{}
	w := watch(t, registry)
	w.want("")
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
	if w.quiet(); len(last) != 8*25 {
		t.Errorf("%d instances were set last, want %d", len(last), 8*25)
	}
}

func TestListed_ReplaceHasSetWhenItReturns(t *testing.T) {
	listed := &Listed{}
	listed.Replace(instances("z"))
	w, second := watch(t, listed), watch(t, listed)
	w.want("z")
	second.want("z")
	given := instances("a b")
	listed.Replace(given)
	w.now("a b")
	second.now("a b")
	given[0].Name = "changed"
	listed.Replace(instances("a b"))
	w.quiet()
	listed.Replace(nil)
	w.want("")
}

func TestListed_SetIsNotCalledOnceWatchHasReturned(t *testing.T) {
	listed := &Listed{}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	must(t, listed.Watch(ctx, func([]upstream.Instance) { calls++; cancel() }))
	listed.Replace(instances("a"))
	if calls != 1 {
		t.Errorf("set was called %d times, want once", calls)
	}
}

func TestRanks(t *testing.T) {
	one := instance("d")
	if got := Ranks(one, 0); len(got) != 1 || got[0] != one {
		t.Errorf("Ranks(0) = %+v, want the instance as it is", got)
	}
	for events, want := range map[string]string{"tcp://h:5557": "tcp://h:5558", "none": "none"} { // at ports behind one another, where they are at ports
		one.KVEvents = events
		first, second := one, one
		first.Name, first.Ranked = "d@0", true
		second.Name, second.Ranked, second.Rank, second.KVEvents = "d@1", true, 1, want
		if got := Ranks(one, 2); len(got) != 2 || got[0] != first || got[1] != second {
			t.Errorf("got %+v, want %+v and %+v", got, first, second)
		}
	}
}
