package facts

import (
	"testing"

	"carryover/upstream"
)

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
	e := newRig(t).named(upstream.RoleDecode, "d")[0]
	s := tells(e, "1")
	for n, row := range []struct {
		present bool
		want    Finding
	}{{true, Yes}, {true, Yes}, {false, No}, {true, No}} {
		s.PlugIn.Learn(row.present)
		if got := s.PlugIn.Found(); got != row.want {
			t.Errorf("after answer %d: got %d, want %d", n, got, row.want)
		}
	}
	s = tells(e, "2")
	if got := s.PlugIn.Found(); got != Unknown {
		t.Errorf("next start: got %d, want Unknown", got)
	}
	if s.PlugIn.Learn(false); s.PlugIn.Found() != No {
		t.Error("an engine without plug-in is not known as such")
	}
}
