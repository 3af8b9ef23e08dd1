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
	s.PlugIn.Learn(true)
	text += "vllm:cache_config_info{block_size=\"16\"} 1\n"
	if e.Refresh(t.Context()); e.Fresh() != s || s.BlockSize() != 16 {
		t.Errorf("read again: got start %q, blocks of %d", e.Fresh().ID(), s.BlockSize())
	}
	e.Refused()
	if e.Fresh() == s || e.Last() == s {
		t.Error("after a refusal the start is known without a reading")
	}
	if e.Current(t.Context()) != s || s.PlugIn.Found() != facts.Yes {
		t.Error("after a refusal: got another start, want the same")
	}
	text = "process_start_time_seconds 6\n"
	e.Refresh(t.Context())
	if next := e.Fresh(); next == s || next.PlugIn.Found() != facts.Unknown || next.BlockSize() != 0 {
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
	blank.PlugIn.Learn(true)
	if got := blank.Parity.Learn("", "m", "f", true); got != facts.Unknown || blank.PlugIn.Found() != facts.Unknown || blank.Parity.Of("m", "f") != facts.Unknown {
		t.Error("something was learnt of it")
	}
	if blank.Capability.Probe(t.Context(), body.Chat, "") != facts.Unknown {
		t.Error("something was found out of it")
	}
}

// An engine that tells nothing has habits all the same, and the same incarnation for as long.
func TestIncarnation_HabitsOfAnEngineThatTellsNothing(t *testing.T) {
	e := newRig(t).named(upstream.RoleDecode, "d")[0]
	for range facts.SilentAfter - 1 {
		if e.Fresh().Silence.SentNothing() {
			t.Error("silent too early")
		}
	}
	if !e.Last().Silence.SentNothing() || !e.Fresh().Silence.Silent() {
		t.Error("want a silent start")
	}
	e.LearnPrefill(1000, time.Second, false)
	e.Fresh().Engine().AnswerIDs.Foreign("leg", "chatcmpl-leg")
	next := tells(e, "1")
	if next.Silence.Silent() || next.Engine().Expects(2000) != 2*time.Second || !next.Engine().AnswerIDs.Foreign("leg", "chatcmpl-other") {
		t.Error("want a start that has the pace and the echo of the one before, and is not silent")
	}
	e.Refused()
	if blank := e.Fresh(); blank.Silence.Silent() || blank.Engine().Expects(1000) != time.Second || !blank.Engine().AnswerIDs.Foreign("leg", "chatcmpl-other") {
		t.Error("want the same of one that is not known any more")
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
