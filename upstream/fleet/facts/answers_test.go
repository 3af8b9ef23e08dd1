package facts

import (
	"testing"
)

func TestForgets_TurnsInARowThatFindNothing(t *testing.T) {
	p := plain(t)
	miss := func(n int) {
		for range n {
			p.PrefixCache.HandedBackFound(No)
		}
	}
	miss(maxEvicted - 1)
	p.PrefixCache.HandedBackFound(Yes)
	miss(maxEvicted - 1)
	if why := p.PrefixCache.Forgets(); why != "" {
		t.Errorf("%q, though a turn has found it", why)
	}
	miss(1)
	if p.PrefixCache.Forgets() == "" {
		t.Error("handed back though turns find nothing of it")
	}
	p.rig.pass(evictedRest)
	if why := p.PrefixCache.Forgets(); why != "" {
		t.Errorf("%q for ever", why)
	}
	if miss(1); p.PrefixCache.Forgets() == "" {
		t.Error("the first turn after that has found nothing, and it goes on")
	}
	p.rig.pass(evictedRest)
	p.PrefixCache.HandedBackFound(Yes)
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
	p := plain(t)
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

func TestSilence_IsBrokenByParams(t *testing.T) {
	var s Silence
	for range 2 * SilentAfter {
		s.SentNothing()
	}
	if s.SentNothing() || !s.Silent() {
		t.Error("want one that has long been silent")
	}
	if s.SentParams(); s.Silent() {
		t.Error("silent after an answer with params")
	}
}

func TestAnswerIDs_AnAnswerIsForeignIfAnEngineEchoesAndThisOneDoesNot(t *testing.T) {
	var s AnswerIDs
	for n, row := range []struct {
		leg, id string
		want    bool
	}{
		{"a", "", false}, {"a", "gateway-1", false}, // of an engine that may stand behind a gateway
		{"a", "chatcmpl-a", false},
		{"b", "chatcmpl-a", true}, {"b", "", false}, {"b", "cmpl-b", false}, {"b", "b", true},
	} {
		if got := s.Foreign(row.leg, row.id); got != row.want {
			t.Errorf("answer %d: got %t, want %t", n, got, row.want)
		}
	}
}

func TestPlugIn_IsWithdrawnByTheFirstAnswerWithout(t *testing.T) {
	s := plain(t)
	for n, row := range []struct {
		present bool
		want    Finding
	}{{true, Yes}, {true, Yes}, {false, No}, {true, No}} {
		s.PlugIn.Learn(row.present)
		if got := s.PlugIn.Found(); got != row.want {
			t.Errorf("after answer %d: got %d, want %d", n, got, row.want)
		}
	}
	s = s.next()
	if got := s.PlugIn.Found(); got != Unknown {
		t.Errorf("next start: got %d, want Unknown", got)
	}
	if s.PlugIn.Learn(false); s.PlugIn.Found() != No {
		t.Error("an engine without plug-in is not known as such")
	}
}
