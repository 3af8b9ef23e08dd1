package main

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func answered(first, hit bool, ttft time.Duration) spoken {
	return spoken{id: "t", first: first, hit: hit, ttft: ttft}
}

func TestTTFT_IsThePercentileInEngineTime(t *testing.T) {
	r := result{scale: 10}
	for n := 20; n >= 1; n-- {
		r.spoken = append(r.spoken, answered(false, false, time.Duration(n)*time.Millisecond))
	}
	r.spoken = append(r.spoken, spoken{err: errors.New("broke off")})
	for share, want := range map[float64]time.Duration{0.5: 100, 0.95: 190, 0.99: 200, 1: 200, 0: 10} {
		if got := r.ttft(share); got != want*time.Millisecond {
			t.Errorf("share %v: %v, want %v", share, got, want*time.Millisecond)
		}
	}
	if got := (&result{scale: 1}).ttft(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestHitRate_CountsAnsweredTurnsAfterTheFirst(t *testing.T) {
	r := result{spoken: []spoken{
		answered(true, false, 1), answered(true, true, 1), answered(false, true, 1), answered(false, true, 1), answered(false, false, 1),
		{hit: true, err: errors.New("broke off")},
	}}
	if got := r.hitRate(); got != 2.0/3 {
		t.Errorf("got %v, want two thirds", got)
	}
}

func TestAccount_SharesAndLosses(t *testing.T) {
	p1, p2, d1 := &process{name: "p1", url: "http://127.0.0.1:1"}, &process{name: "p2", url: "http://127.0.0.1:21"}, &process{name: "d1", url: "http://127.0.0.1:3"}
	killed := time.Now()
	before, after, broke := killed.Add(-time.Second), killed.Add(time.Second), errors.New("broke off")
	f := &fleet{prefill: []*process{p1, p2}, decode: []*process{d1}, log: turnLog{lines: map[string]turnLine{
		"good":    {Prefill: "127.0.0.1:21", Decode: "127.0.0.1:3"},
		"reached": {Prefill: "127.0.0.1:21", Decode: "127.0.0.1:3", Error: "unexpected EOF"},
		"late":    {Prefill: "127.0.0.1:1", Decode: "127.0.0.1:3", Error: "unexpected EOF"},
		"refused": {Prefill: "127.0.0.1:1", Decode: "127.0.0.1:3", Error: "connection refused"},
		"other":   {Prefill: "127.0.0.1:21", Decode: "127.0.0.1:4", Error: "unexpected EOF"},
	}}}
	r := result{killedAt: killed, victims: []*process{p1, d1}, spoken: []spoken{
		{id: "good", began: before}, {id: "reached", began: before, err: broke}, {id: "late", began: after, err: broke},
		{id: "refused", began: before, err: broke}, {id: "other", began: before, err: broke}, {id: "unheard of", began: before, err: broke},
	}}
	r.account(f)
	var lost []string
	for _, l := range r.lost() {
		lost = append(lost, l.id)
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
	run := func(ttft time.Duration, hits int) result {
		r := result{scale: 1}
		for n := range 100 {
			r.spoken = append(r.spoken, answered(false, n < hits, ttft))
		}
		return r
	}
	for name, c := range map[string]struct {
		auto  result
		wrong string
	}{
		"as good as needed": {run(750*time.Millisecond, 87), ""},
		"too slow":          {run(751*time.Millisecond, 90), "p95"},
		"too few hits":      {run(time.Millisecond, 86), "hit rate"},
		"without answers":   {result{}, "hit rate"},
	} {
		err := compare(map[string]result{"auto": c.auto, "affinity": run(time.Second, 90), "round_robin": run(time.Second, 90)})
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
	if err := compare(map[string]result{"round_robin": run(time.Second, 0)}); err != nil {
		t.Errorf("without auto: %v", err)
	}
	if err := (&result{double: 1}).judge("x"); err == nil {
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
		systems[c.system] = true
		if n := len(c.turns); n < 4 || n > 6 || c.begins > time.Minute || i > 0 && c.begins < a[i-1].begins || c.turns[0].think != 0 {
			t.Errorf("conversation %d: %d turns, begins after %v", i, n, c.begins)
		}
	}
	if len(systems) != 4 || a[len(a)-1].begins < 59*time.Second {
		t.Errorf("%d system prompts, the last begins after %v", len(systems), a[len(a)-1].begins)
	}
}

func TestRead_WhatCountsAsAnAnswer(t *testing.T) {
	for stream, want := range map[string]string{
		"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\ndata: [DONE]\n\n": "ab",
		"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n":                                                                          "broke off",
		"data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n":                                                                          "error event",
		"data: {\n\n": "event",
	} {
		s := spoken{began: time.Now()}
		got, err := s.read(strings.NewReader(stream))
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err == nil && s.ttft == 0 {
			t.Errorf("%q: %q after %v, want %q", stream, got, s.ttft, want)
		}
	}
}
