package discovery_test

import (
	"context"
	"testing"

	"carryover/upstream"
	"carryover/upstream/discovery"
)

func TestListed_SetsTheListOnceAndEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	listed := &discovery.Listed{}
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
	listed := &discovery.Listed{}
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
	listed := &discovery.Listed{}
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
	if got := discovery.Ranks(one, 0); len(got) != 1 || got[0] != one {
		t.Errorf("Ranks(0) = %+v, want the instance as it is", got)
	}
	one.KVEvents = "tcp://h:5557"
	got := discovery.Ranks(one, 2)
	if got[0].KVEvents != "tcp://h:5557" || got[1].KVEvents != "tcp://h:5558" {
		t.Errorf("events of ranks at %s and %s, want at ports behind one another", got[0].KVEvents, got[1].KVEvents)
	}
	one.KVEvents = "none"
	if at := discovery.Ranks(one, 2)[1].KVEvents; at != "none" {
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
