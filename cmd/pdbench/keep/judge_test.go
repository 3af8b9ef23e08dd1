package keep

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/talk"
)

// good is a policy of 100 turns that pins a million token-seconds and computes 100 of 200 seconds.
func good() *figures {
	f := &figures{perToken: time.Millisecond, counted: fleet.Counts{Prompt: 200_000, Computed: 100_000}}
	f.pin(1e6, 100*time.Second)
	for range 100 {
		f.turns = append(f.turns, talk.Turn{Prompt: 2000})
	}
	return f
}

// costly is a policy that costs more in everything.
func costly() *figures {
	f := good()
	f.pin(9e6, 100*time.Second)
	f.counted.Computed = 150_000
	return f
}

func TestJudge_NamesWhatIsWorseByMoreThanATenth(t *testing.T) {
	for _, tc := range []struct {
		name    string
		spoil   func(*figures)
		failing string // "" if all hold
	}{
		{"as good", func(*figures) {}, ""},
		{"better", func(f *figures) { f.pinned, f.counted.Computed = 0, 0 }, ""},
		{"pins a tenth more", func(f *figures) { f.pinned = 1.1e6 }, ""},
		{"pins eleven hundredths more", func(f *figures) { f.pinned = 1.11e6 }, "pinned"},
		{"hits a tenth less", func(f *figures) { f.counted.Computed, f.perToken = 109_999, time.Microsecond }, ""},
		{"hits eleven hundredths less", func(f *figures) { f.counted.Computed, f.perToken = 111_000, time.Microsecond }, "not computed"},
		{"computes a tenth more", func(f *figures) { f.counted.HandBackComputed = 10_000 }, ""},
		{"computes eleven hundredths more", func(f *figures) { f.counted.HandBackComputed = 11_000 }, "prefill"},
		{"hands back too often", func(f *figures) { f.counted.HandBacks = 11_000/legTokens + 1 }, "prefill"},
	} {
		results := map[string]*figures{learnt: good(), "5 s": good(), "keep": costly()}
		tc.spoil(results[learnt])
		var failing []string
		for _, b := range judge("chat", results) {
			if !b.Holds() {
				failing = append(failing, b.String())
			}
		}
		if tc.failing == "" && failing != nil || tc.failing != "" && (len(failing) != 1 || !strings.Contains(failing[0], tc.failing) || !strings.Contains(failing[0], "5 s")) {
			t.Errorf("%s: %q, want %q", tc.name, failing, tc.failing)
		}
	}
}

func TestJudge_NothingToCompare(t *testing.T) {
	for _, results := range []map[string]*figures{{learnt: good()}, {"5 s": good()}} {
		if bars := judge("chat", results); len(bars) != 1 || bars[0].Holds() {
			t.Errorf("%v", bars)
		}
	}
	nothing := map[string]*figures{learnt: {}, "5 s": {}}
	for _, b := range judge("one-shot", nothing) {
		if !b.Holds() {
			t.Errorf("nothing is worse than nothing: %v", b)
		}
	}
}

func TestBestFixed_HasTheLeastTotal(t *testing.T) {
	cheap := good()
	cheap.counted.Computed = 1
	if got := bestFixed(map[string]*figures{"keep": costly(), "15 s": good(), "1 s": costly(), learnt: cheap}); got != "15 s" {
		t.Errorf("the best is %q", got)
	}
}

func TestRight_NamesWhatWentWrong(t *testing.T) {
	for want, spoil := range map[string]func(*figures){
		"":           func(*figures) {},
		"broke off":  func(f *figures) { f.turns[7].Err = errors.New("broke off") },
		"turns is 0": func(f *figures) { f.turns = nil },
		"misuse":     func(f *figures) { f.counted.Misuse = 1 },
		"preempt":    func(f *figures) { f.counted.Preempted = 1 },
	} {
		f := good()
		spoil(f)
		var failing []string
		for _, b := range f.right("chat, keep") {
			if !b.Holds() {
				failing = append(failing, b.String())
			}
		}
		if want == "" && failing != nil || want != "" && (len(failing) != 1 || !strings.Contains(failing[0], want)) {
			t.Errorf("%q: %q", want, failing)
		}
	}
}

func TestFigures_WhatThingsCost(t *testing.T) {
	const cache = decodeBlocks * blockSize
	f := figures{perToken: time.Millisecond, counted: fleet.Counts{Prompt: 4000, Computed: 1000, HandBacks: 10, HandBackComputed: 80}}
	f.turns = make(talk.Record, 20)
	f.pin(cache*10, 20*time.Second) // half of the cache, for which a second costs a second
	f.pin(cache*4, 4*time.Second)   // all of it
	for what, pair := range map[string][2]float64{
		"price": {f.price, 10 + 1.5*4}, "pinned": {f.pinned, cache * 14}, "hits": {f.hits(), 0.75}, "legs": {f.legs(), 0.5},
		"prefill": {f.prefill(), 1 + 0.08 + 10*0.128}, "total": {f.total(), 16 + 2.36},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-9*pair[1] {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
}
