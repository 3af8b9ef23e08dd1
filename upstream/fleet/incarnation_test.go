package fleet

import (
	"testing"
	"time"

	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/pairs"
)

func TestIncarnation_TheSameIDIsTheSameIncarnation(t *testing.T) {
	r := newRig(t)
	e := r.fake("d0")
	r.play("d0 says start=5; d0 current 5")
	s := e.Fresh()
	s.PlugIn.Learn(true)
	r.play(`d0 says start=5 vllm:cache_config_info{block_size="16"}=1; d0 is-read`)
	if e.Fresh() != s || s.BlockSize() != 16 {
		t.Errorf("read again: got start %q, blocks of %d", e.Fresh().ID(), s.BlockSize())
	}
	e.Refused()
	if e.Fresh() == s || e.Last() == s {
		t.Error("after a refusal the start is known without a reading")
	}
	if e.Current(t.Context()) != s || s.PlugIn.Found() != facts.Yes {
		t.Error("after a refusal: got another start, want the same")
	}
	r.play("d0 says start=6; d0 is-read")
	if next := e.Fresh(); next == s || next.PlugIn.Found() != facts.Unknown || next.BlockSize() != 0 {
		t.Error("what is known of a start is known of the next one")
	}
}

func TestIncarnation_UnknownIsEqualToNothing(t *testing.T) {
	r := newRig(t)
	r.play("add p0 d0; d0 tells 1")
	decode, blank := r.told["d0"], r.engines["p0"].Fresh()
	if blank.Known() || blank.ID() != "" || blank.Alive(t.Context()) {
		t.Error("want one that is not known")
	}
	none := blank.PairWith(decode)
	if none != nil || decode.PairWith(blank) != nil || blank.PairWith(blank) != nil || blank.PairWith(nil) != nil || decode.PairWith(nil) != nil {
		t.Error("it has a pair")
	}
	none.ExchangedKV() // which does nothing
	none.ReleaseFailed(true)
	if pause, resumed := none.End(pairs.Answered, ""); pause != 0 || resumed || none.Releases() || none.CarriesReleases() || none.Begin("") != pairs.NoReuse {
		t.Error("no pair has something to give")
	}
	blank.PlugIn.Learn(true)
	if got := blank.Parity.Learn("", "m", "f", true); got != facts.Unknown || blank.PlugIn.Found() != facts.Unknown || blank.Parity.Of("m", "f") != facts.Unknown {
		t.Error("something was learnt of it")
	}
	if blank.Capability.Probe(t.Context(), body.Chat, "") != facts.Unknown {
		t.Error("something was found out of it")
	}
}

func TestIncarnation_HabitsOfAnEngineThatTellsNothing(t *testing.T) {
	e := newRig(t).named("d0")[0]
	for range facts.SilentAfter - 1 {
		if e.Fresh().Silence.SentNothing() {
			t.Error("silent too early")
		}
	}
	if !e.Last().Silence.SentNothing() || !e.Fresh().Silence.Silent() {
		t.Error("want a silent start")
	}
	e.LearnPrefill(1000, time.Second, false)
	e.AnswerIDs.Foreign("leg", "chatcmpl-leg")
	next := tells(e, "1")
	e.Refused()
	for _, i := range []*Incarnation{next, e.Fresh()} { // which is not known any more
		if of := i.Engine(); i.Silence.Silent() || of.Expects(2000) != 2*time.Second || !of.AnswerIDs.Foreign("leg", "chatcmpl-other") {
			t.Errorf("start %q: want the pace and the echo of the one before, and no silence", i.ID())
		}
	}
}

func TestIncarnation_AJudgmentIsOfOneIncarnation(t *testing.T) {
	e := newRig(t).named("d0")[0]
	one, two, blank := tells(e, "1"), newIncarnation(e, "2"), newIncarnation(e, "")
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
