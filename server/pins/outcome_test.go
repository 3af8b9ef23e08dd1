package pins

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/logtest"
	"carryover/upstream/fleet/pairs"
)

// telling is a replica that tells how tickets of three hours end.
type telling struct {
	*replica
	log  logtest.Log
	told []string
}

func newTelling(tb testing.TB) *telling {
	tb.Helper()
	r := &telling{}
	model := newDecodeModel(tb, 1)
	model.random = nil
	model.logger, model.tell = r.log.Logger(), func(sentence string) { r.told = append(r.told, sentence) }
	r.replica = newReplica(tb, model, newModelStore(nil), releasing())
	r.cfg.Logger, r.told = model.logger, nil
	return r
}

// ends returns the status of the pair before.
func (r *telling) ends(outcome pairs.Outcome) pairs.Status {
	pair := r.prefill.PairWith(r.decode)
	status := pair.Begin("")
	ticket := &convcache.Ticket{Branch: convcache.Branch{FreshAsOf: time.Now().Add(-3 * time.Hour)}}
	of := Claim{Ticket: ticket, Holder: r.decode, Reader: r.prefill, PairState: pair, pins: r.Pins}
	of.tell(outcome)
	return status
}

// logs checks how often texts are logged.
func (r *telling) logs(want int, texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if got := r.log.Count(text); got != want {
			r.t.Errorf("%q is logged %d times, want %d: %q", text, got, want, r.log.String())
		}
	}
}

// A ticket that prefill refuses is warned of at once, with its age and the time for which decode is believed to keep blocks.
func TestRefused_SaysTheAgeAndAsksForTheTTL(t *testing.T) {
	r := newTelling(t)
	r.ends(pairs.Answered)
	r.logs(0, "\n")
	r.ends(pairs.Failed)
	r.logs(1, "\n", "level=WARN", "ticket_age=3h0m", "decoder_kv_ttl=8m0s", "decoder_kv_blocks_ttl", "--decoder-kv-ttl")
	for range 2 {
		r.ends(pairs.Failed)
	}
	r.logs(1, "the pair is left alone")
	r.logs(4, "ticket_age=3h0m")
	if want := "Prefill p and decode d reuse nothing for 1m0s: prefill answers 5xx to tickets of decode."; !slices.Equal(r.told, []string{want}) {
		t.Errorf("operators are told %q, want %q", r.told, want)
	}
	unanswered := newTelling(t)
	unanswered.ends(pairs.Unanswered)
	unanswered.logs(1, "prefill does not answer tickets of decode")
}

// A stopped pair whose trial prefill answers is told of once, and later answers are not.
func TestResumed_OperatorsAreTold(t *testing.T) {
	r := newTelling(t)
	statuses := fmt.Sprint(r.ends(pairs.Unanswered), r.prefill.PairWith(r.decode).Begin(""))
	r.model.passed.Add(int64(time.Minute))
	statuses += fmt.Sprint(" ", r.ends(pairs.Answered), r.ends(pairs.Answered))
	if want := fmt.Sprint(pairs.Trial, pairs.NoReuse, " ", pairs.Trial, pairs.Proven); statuses != want {
		t.Errorf("the pair's statuses are %s, want %s", statuses, want)
	}
	if want := "Prefill p and decode d are used together again: prefill answers tickets of decode again."; len(r.told) != 2 || !strings.Contains(r.told[1], want) {
		t.Errorf("operators are told %q, want %q as the second", r.told, want)
	}
	r.logs(1, "the pair is used again")
}
