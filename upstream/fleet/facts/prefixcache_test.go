package facts

import (
	"testing"
)

func TestForgets_TurnsInARowThatFindNothing(t *testing.T) {
	r := newRig(t)
	p, _ := r.incarnations()
	miss := func(n int) {
		for range n {
			p.PrefixCache.HandedBackFound(false)
		}
	}
	miss(maxEvicted - 1)
	p.PrefixCache.HandedBackFound(true)
	miss(maxEvicted - 1)
	if why := p.PrefixCache.Forgets(); why != "" {
		t.Errorf("%q, though a turn has found it", why)
	}
	miss(1)
	if p.PrefixCache.Forgets() == "" {
		t.Error("handed back though turns find nothing of it")
	}
	r.pass(evictedRest)
	if why := p.PrefixCache.Forgets(); why != "" {
		t.Errorf("%q for ever", why)
	}
	if miss(1); p.PrefixCache.Forgets() == "" {
		t.Error("the first turn after that has found nothing, and it goes on")
	}
	r.pass(evictedRest)
	p.PrefixCache.HandedBackFound(true)
	miss(1)
	if why := p.PrefixCache.Forgets(); why != "" {
		t.Errorf("%q after a turn that has found it", why)
	}
	p.PrefixCache.Told(No)
	if p.PrefixCache.Forgets() == "" {
		t.Error("handed back to an engine without prefix caching")
	}
}

func TestAnsweredAs_OtherEnginesThanBefore(t *testing.T) {
	r := newRig(t)
	p, _ := r.incarnations()
	for i, row := range []struct {
		id   string
		want bool
	}{{"", true}, {"a", true}, {"a", true}, {"b", false}, {"", true}, {"b", true}, {"a", true}} {
		if got := p.PrefixCache.AnsweredAs(row.id); got != row.want {
			t.Errorf("answer %d of %q: known %v, want %v", i, row.id, got, row.want)
		}
	}
	for i := range 2 * maxEngines {
		p.PrefixCache.AnsweredAs(string(rune('A' + i)))
	}
	if n := len(p.PrefixCache.engines); n != maxEngines {
		t.Errorf("%d ids are kept, want %d at most", n, maxEngines)
	}
}
