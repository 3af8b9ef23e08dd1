package pins

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// A ticket that prefill refuses is warned of at once, with its age and the time for which decode is believed to keep blocks; once for each
// start of decode, though links stop after several.
func TestRefused_SaysTheAgeAndAsksForTheTTL(t *testing.T) {
	_, holder := newPair(t)
	reader, _ := newPair(t)
	var log strings.Builder
	var told []string
	r := &Pins{cfg: &Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Tell: func(sentence string) { told = append(told, sentence) }}}
	pairState := reader.PairWith(holder)
	tell := func(outcome pairs.Outcome) {
		r.tell(&Claim{
			Ticket: &convcache.Ticket{Branch: convcache.Branch{FreshAsOf: time.Now().Add(-3 * time.Hour)}}, Holder: holder, Reader: reader, PairState: pairState,
		}, outcome)
	}
	tell(pairs.Answered)
	if log.Len() > 0 {
		t.Errorf("an answered ticket is logged: %s", log.String())
	}
	for range 2 {
		pairState.Begin("")
		tell(pairs.Failed)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "ticket_age=3h0m") ||
		!strings.Contains(got, "decoder_kv_ttl="+holder.Engine().Instance().KVTTL.String()) || !strings.Contains(got, "decoder_kv_blocks_ttl") || !strings.Contains(got, "--decoder-kv-ttl") {
		t.Errorf("logged %q, want one warning with the age of the ticket, and the settings", got)
	}
	for range 3 {
		pairState.Begin("")
		tell(pairs.Failed)
	}
	if got := log.String(); !strings.Contains(got, "reuse is off for a pair") || strings.Count(got, "ticket_age=3h0m") != 2 {
		t.Errorf("logged %q, want a second warning with the age when the link stops", got)
	}
	want := fmt.Sprintf("Prefill %s and decode %s reuse nothing for 1m0s, for everybody: prefill answers 5xx to tickets of decode.", reader.Engine().Name, holder.Engine().Name)
	if !slices.Equal(told, []string{want}) {
		t.Errorf("operators are told %q, want %q", told, want)
	}
	pairState = pairs.New(time.Now)
	pairState.Begin("")
	if tell(pairs.Unanswered); strings.Count(log.String(), "prefill does not answer tickets of decode") != 1 {
		t.Errorf("logged %q, want a warning of an unanswered trial", log.String())
	}
}

// A stopped pair whose trial prefill answers is told of once, and later answers are not.
func TestResumed_OperatorsAreTold(t *testing.T) {
	now := time.Now()
	_, reader, holder := newPairIn(t, fleet.Config{ReadLimit: time.Minute, Now: func() time.Time { return now }})
	var log strings.Builder
	var told []string
	r := &Pins{cfg: &Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Tell: func(sentence string) { told = append(told, sentence) }}}
	pairState := reader.PairWith(holder)
	ends := func(want pairs.Status, outcome pairs.Outcome) {
		t.Helper()
		if got := pairState.Begin(""); got != want {
			t.Fatalf("the pair's status is %v, want %v", got, want)
		}
		r.tell(&Claim{Ticket: &convcache.Ticket{}, Holder: holder, Reader: reader, PairState: pairState}, outcome)
	}
	ends(pairs.Trial, pairs.Unanswered)
	if pairState.Begin("") != pairs.NoReuse || len(told) != 1 {
		t.Fatalf("the pair is not stopped: %q", told)
	}
	now = now.Add(time.Minute)
	ends(pairs.Trial, pairs.Answered)
	ends(pairs.Proven, pairs.Answered)
	want := fmt.Sprintf("Prefill %s answers tickets of decode %s again; they are used from now on.", reader.Engine().Name, holder.Engine().Name)
	if len(told) != 2 || told[1] != want {
		t.Errorf("operators are told %q, want %q as the second", told, want)
	}
	if got := log.String(); strings.Count(got, "prefill answers tickets of decode again; reuse is on for this pair") != 1 {
		t.Errorf("logged %q, want one line for the pair", got)
	}
}
