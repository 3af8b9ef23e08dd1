package fleet

import (
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// The same id is the same incarnation, whatever was forgotten in between; its block size may
// become known later.
func TestIncarnation_TheSameIDIsTheSameIncarnation(t *testing.T) {
	r := newRig(t)
	asked, text := 0, "process_start_time_seconds 5\n"
	e := r.engine(upstream.RoleDecode, tellsMetrics(&asked, &text))
	s := e.Current(t.Context())
	s.LearnPlugIn(true)
	text += "vllm:cache_config_info{block_size=\"16\"} 1\n"
	if e.Refresh(t.Context()); e.Fresh() != s || s.BlockSize() != 16 {
		t.Errorf("read again: got start %q, blocks of %d", e.Fresh().ID(), s.BlockSize())
	}
	e.Refused()
	if e.Fresh() == s || e.Last() == s {
		t.Error("after a refusal the start is known without a reading")
	}
	if e.Current(t.Context()) != s || s.PlugIn() != facts.Yes {
		t.Error("after a refusal: got another start, want the same")
	}
	text = "process_start_time_seconds 6\n"
	e.Refresh(t.Context())
	if next := e.Fresh(); next == s || next.PlugIn() != facts.Unknown || next.BlockSize() != 0 {
		t.Error("what is known of a start is known of the next one")
	}
}

// Nothing of one that is not known could be told from another one's.
func TestIncarnation_UnknownIsEqualToNothing(t *testing.T) {
	r := newRig(t)
	_, decode := r.incarnations()
	blank := r.named(upstream.RolePrefill, "blank")[0].Fresh()
	if blank.Known() || blank.ID() != "" || blank.Alive(t.Context()) {
		t.Error("want one that is not known")
	}
	if blank.PairWith(decode) != nil || decode.PairWith(blank) != nil || blank.PairWith(blank) != nil || blank.PairWith(nil) != nil || decode.PairWith(nil) != nil {
		t.Error("it has a link")
	}
	blank.LearnPlugIn(true)
	if got := blank.LearnParity("m", "f", true); got != facts.Unknown || blank.PlugIn() != facts.Unknown || blank.Parity("m", "f") != facts.Unknown {
		t.Error("something was learnt of it")
	}
	if blank.ProbeIDs(t.Context(), body.Chat, "") != facts.Unknown || blank.AppendOnly(t.Context(), "m", nil, "") != facts.Unknown {
		t.Error("something was found out of it")
	}
}

// An engine that tells nothing has habits all the same, and the same incarnation for as long.
func TestIncarnation_HabitsOfAnEngineThatTellsNothing(t *testing.T) {
	e := newRig(t).named(upstream.RoleDecode, "d")[0]
	for range silentAfter - 1 {
		if e.Fresh().SentNothing() {
			t.Error("silent too early")
		}
	}
	if !e.Last().SentNothing() || !e.Fresh().Silent() {
		t.Error("want a silent start")
	}
	e.Fresh().LearnBodySpeed(1000, time.Second)
	e.Fresh().Foreign("leg", "chatcmpl-leg")
	next := tells(e, "1")
	if next.Silent() || next.Expect(2000) != 2*time.Second || !next.Foreign("leg", "chatcmpl-other") {
		t.Error("want a start that has the pace and the echo of the one before, and is not silent")
	}
	e.Refused()
	if blank := e.Fresh(); blank.Silent() || blank.Expect(1000) != time.Second || !blank.Foreign("leg", "chatcmpl-other") {
		t.Error("want the same of one that is not known any more")
	}
}

func TestIncarnation_SilenceIsBrokenByParams(t *testing.T) {
	_, s := newRig(t).incarnations()
	for range 2 * silentAfter {
		s.SentNothing()
	}
	if s.SentNothing() || !s.Silent() {
		t.Error("want one that has long been silent")
	}
	if s.SentParams(); s.Silent() {
		t.Error("silent after an answer with params")
	}
}

func TestIncarnation_AnAnswerIsForeignIfAnEngineEchoesAndThisOneDoesNot(t *testing.T) {
	_, s := newRig(t).incarnations()
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

func TestIncarnation_BodySpeedFollowsTheLastLegs(t *testing.T) {
	s, _ := newRig(t).incarnations()
	if got := s.Expect(1000); got != 0 {
		t.Errorf("before any leg = %v, want 0", got)
	}
	s.LearnBodySpeed(0, time.Second) // says nothing
	s.LearnBodySpeed(1000, time.Second)
	if got := s.Expect(2000); got != 2*time.Second {
		t.Errorf("after one leg = %v, want 2s", got)
	}
	s.LearnBodySpeed(1000, 6*time.Second)
	if got := s.Expect(1000); got != 2*time.Second {
		t.Errorf("mean after 1s and 6s = %v, want 2s", got)
	}
}

// Each change of what an engine's start is worth is told once.
func TestIncarnation_AJudgmentIsOfOneIncarnation(t *testing.T) {
	e := newRig(t).named(upstream.RoleDecode, "d")[0]
	one, blank := tells(e, "1"), newIncarnation(e, "")
	two := newIncarnation(e, "2")
	for n, row := range []struct {
		incarnation *Incarnation
		why         string
		want        bool
	}{
		{one, "", true}, {one, "", false}, {one, "probe", true}, {one, "probe", false}, {one, "", true},
		{two, "", true}, {blank, "start", true}, {blank, "start", false}, {two, "", true},
	} {
		if got := row.incarnation.Judge(row.why); got != row.want {
			t.Errorf("judgment %d: got %t, want %t", n, got, row.want)
		}
	}
}

func TestIncarnation_PlugInIsWithdrawnByTheFirstAnswerWithout(t *testing.T) {
	e := newRig(t).named(upstream.RoleDecode, "d")[0]
	s := tells(e, "1")
	for n, row := range []struct {
		present bool
		want    facts.Finding
	}{{true, facts.Yes}, {true, facts.Yes}, {false, facts.No}, {true, facts.No}} {
		s.LearnPlugIn(row.present)
		if got := s.PlugIn(); got != row.want {
			t.Errorf("after answer %d: got %d, want %d", n, got, row.want)
		}
	}
	s = tells(e, "2")
	if got := s.PlugIn(); got != facts.Unknown {
		t.Errorf("next start: got %d, want Unknown", got)
	}
	if s.LearnPlugIn(false); s.PlugIn() != facts.No {
		t.Error("an engine without plug-in is not known as such")
	}
}
