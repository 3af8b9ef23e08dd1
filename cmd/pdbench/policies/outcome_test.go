package policies

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/result"
	"carryover/cmd/pdbench/talk"
)

func answered(first, hit bool, ttft time.Duration) talk.Turn {
	t := talk.Turn{ID: "t", Next: !first, TTFT: ttft}
	if hit {
		t.Reuse = "hit;proof=engine"
	}
	return t
}

func TestTTFT_IsThePercentileInEngineTime(t *testing.T) {
	r := outcome{clock: 10}
	for n := 20; n >= 1; n-- {
		r.turns = append(r.turns, answered(false, false, time.Duration(n)*time.Millisecond))
	}
	r.turns = append(r.turns, talk.Turn{Err: errors.New("broke off")})
	for share, want := range map[float64]time.Duration{0.5: 100, 0.95: 190, 0.99: 200, 1: 200, 0: 10} {
		if got := r.ttft(share); got != want*time.Millisecond {
			t.Errorf("share %v: %v, want %v", share, got, want*time.Millisecond)
		}
	}
	if got := (&outcome{clock: 1}).ttft(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestHitRate_CountsAnsweredTurnsAfterTheFirst(t *testing.T) {
	r := outcome{turns: talk.Record{
		answered(true, false, 1), answered(true, true, 1), answered(false, true, 1), answered(false, true, 1), answered(false, false, 1),
		{Reuse: "hit", Next: true, Err: errors.New("broke off")},
	}}
	if got := r.turns.Hits(); got != 2.0/3 {
		t.Errorf("got %v, want two thirds", got)
	}
}

func TestAccount_SharesAndLosses(t *testing.T) {
	p1, p2, d1 := &fleet.Engine{Name: "p1", URL: "http://127.0.0.1:1"}, &fleet.Engine{Name: "p2", URL: "http://127.0.0.1:21"}, &fleet.Engine{Name: "d1", URL: "http://127.0.0.1:3"}
	killed := time.Now()
	before, after, broke := killed.Add(-time.Second), killed.Add(time.Second), errors.New("broke off")
	lines := map[string]turnLine{
		"good":    {Prefill: "127.0.0.1:21", Decode: "127.0.0.1:3"},
		"reached": {Prefill: "127.0.0.1:21", Decode: "127.0.0.1:3", Error: "unexpected EOF"},
		"late":    {Prefill: "127.0.0.1:1", Decode: "127.0.0.1:3", Error: "unexpected EOF"},
		"refused": {Prefill: "127.0.0.1:1", Decode: "127.0.0.1:3", Error: "connection refused"},
		"other":   {Prefill: "127.0.0.1:21", Decode: "127.0.0.1:4", Error: "unexpected EOF"},
	}
	r := outcome{killedAt: killed, victims: []*fleet.Engine{p1, d1}, turns: talk.Record{
		{ID: "good", Began: before}, {ID: "reached", Began: before, Err: broke}, {ID: "late", Began: after, Err: broke},
		{ID: "refused", Began: before, Err: broke}, {ID: "other", Began: before, Err: broke}, {ID: "unheard of", Began: before, Err: broke},
	}}
	r.account([]*fleet.Engine{p1, p2}, lines)
	var lost []string
	for _, l := range r.lost() {
		lost = append(lost, l.ID)
	}
	if want := []string{"late", "refused", "other", "unheard of"}; !slices.Equal(lost, want) || len(r.failed) != 5 {
		t.Errorf("lost %q of %d failed, want %q of 5", lost, len(r.failed), want)
	}
	if want := []float64{0.4, 0.6}; !slices.Equal(r.shares, want) {
		t.Errorf("shares %v, want %v", r.shares, want)
	}
	if err := r.judge("auto"); err == nil || strings.Contains(err.Error(), "turn reached") {
		t.Errorf("judged %v, want the lost turns only", err)
	}
}

func TestCompare_WhatAutoHasToReach(t *testing.T) {
	run := func(ttft time.Duration, hits int) outcome {
		r := outcome{clock: 1}
		for n := range 100 {
			r.turns = append(r.turns, answered(false, n < hits, ttft))
		}
		return r
	}
	for name, c := range map[string]struct {
		auto  outcome
		wrong string
	}{
		"as good as needed": {run(750*time.Millisecond, 87), ""},
		"too slow":          {run(751*time.Millisecond, 90), "p95"},
		"too few hits":      {run(time.Millisecond, 86), "hit rate"},
		"without answers":   {outcome{}, "hit rate"},
	} {
		err := result.Failing(compare(map[string]outcome{"auto": c.auto, "affinity": run(time.Second, 90), "round_robin": run(time.Second, 90)}))
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
	if err := result.Failing(compare(map[string]outcome{"round_robin": run(time.Second, 0)})); err != nil {
		t.Errorf("without auto: %v", err)
	}
	if err := (&outcome{double: 1}).judge("x"); err == nil {
		t.Error("a double read is accepted")
	}
}

func TestPlan_DependsOnItsSeedOnly(t *testing.T) {
	a, b := plan(1, 40, time.Minute), plan(1, 40, time.Minute)
	if !reflect.DeepEqual(a, b) {
		t.Error("two plans of one seed differ")
	}
	if reflect.DeepEqual(a, plan(2, 40, time.Minute)) {
		t.Error("two seeds give one plan")
	}
	systems := map[string]bool{}
	for i, c := range a {
		systems[c.System] = true
		if n := len(c.Turns); n < 4 || n > 6 || c.Begins > time.Minute || i > 0 && c.Begins < a[i-1].Begins || c.Turns[0].Think != 0 {
			t.Errorf("conversation %d: %d turns, begins after %v", i, n, c.Begins)
		}
	}
	if len(systems) != 4 || a[len(a)-1].Begins < 59*time.Second {
		t.Errorf("%d system prompts, the last begins after %v", len(systems), a[len(a)-1].Begins)
	}
}
