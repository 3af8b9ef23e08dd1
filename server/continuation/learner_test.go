package continuation

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream/body"
)

func key(n int) (k convcache.Key) {
	binary.BigEndian.PutUint64(k[:], uint64(n)+1)
	return k
}

var (
	start = time.Unix(1_800_000_000, 0)
	chat  = Kind{FollowUp: true}
	calls = Kind{FollowUp: true, Tools: true, ToolCalls: true}
)

// answered has the learner know of an answer of nobody in particular.
func answered(l *Learner, kind Kind, n int, at time.Time) {
	l.Answered("", "", kind, key(n), body.Beginning{}, at)
}

// continued is what it knows when a turn comes that has the nth answer in its history.
func continued(l *Learner, n int, at time.Time) (after time.Duration, known bool) {
	after, known = l.Asked(Turn{Key: key(-9), Earlier: []convcache.Key{key(n)}}, at)
	return after, known
}

func TestLearner_LearnsShareAndTimes(t *testing.T) {
	l, at := New(life), start
	for i := range 400 { // three of four are continued, after 3 s
		l.Answered("", "t", chat, key(i), body.Beginning{}, at)
		if at = at.Add(3 * time.Second); i%4 != 0 {
			if after, known := continued(l, i, at); !known || after != 3*time.Second {
				t.Fatalf("answer %d: %v, %v", i, after, known)
			}
		}
	}
	c := l.Curve("t", chat, at)
	if c.Known < 250 || math.Abs(c.later(0)-0.75) > 0.03 {
		t.Errorf("%d known, %.2f of them continued, want 0.75", c.Known, c.later(0))
	}
	for i, wait := range c.waits {
		switch left := c.left[i]; {
		case wait <= 2*time.Second && left < 0.99, wait >= 5*time.Second && math.Abs(left-0.25) > 0.03:
			t.Errorf("%.2f of the answers still wait after %v", left, wait)
		}
	}
	if other := l.Curve("t", calls, at); other.Known != 0 {
		t.Errorf("another kind knows %d", other.Known)
	}
	if other := l.Curve("u", chat, at); other.Known != 0 {
		t.Errorf("another tenant knows %d", other.Known)
	}
}

// Answers that nobody continues are known after Fixed, not after the life of a ticket.
func TestLearner_KnowsOneShotTrafficSoon(t *testing.T) {
	l, at := New(life), start
	for i := range Enough {
		answered(l, Kind{}, i, at)
	}
	if c := l.Curve("", Kind{}, at.Add(Fixed-1)); c.Known != 0 {
		t.Errorf("%d known too early", c.Known)
	}
	c := l.Curve("", Kind{}, at.Add(Fixed))
	if c.Known != Enough {
		t.Errorf("%d known, want %d", c.Known, Enough)
	}
	terms := both(Engines{KVTokens: 1_000_000, BlockSize: 16}, 1000, 800)
	if got := terms.Least(&c); got.End != Release || got.Wait > 2*Fixed {
		t.Errorf("after %v: %+v", Fixed, got)
	}
	for i := range 200 {
		at = at.Add(time.Second)
		answered(l, Kind{}, 1000+i, at)
	}
	c = l.Curve("", Kind{}, at)
	if got := terms.Least(&c); got.Now() != Release {
		t.Errorf("one-shot traffic: %+v", got)
	}
}

func TestLearner_WhatContinuesAnAnswer(t *testing.T) {
	k, other := key(1), key(2)
	for name, c := range map[string]struct {
		kind Kind
		turn Turn
		want bool
	}{
		"an earlier part":                   {chat, Turn{Key: other, Earlier: []convcache.Key{key(3), k}}, true},
		"the same request again":            {chat, Turn{Key: k}, false},
		"the same request, with examples":   {chat, Turn{Key: k, Earlier: []convcache.Key{k}}, false},
		"results of tools":                  {calls, Turn{Key: k, Earlier: []convcache.Key{k}}, true},
		"results of tools, perhaps":         {Kind{Tools: true, Unread: true}, Turn{Key: k}, true},
		"examples that nobody has answered": {chat, Turn{Key: other, Earlier: []convcache.Key{key(3)}}, false},
		"an explicit id":                    {Kind{Explicit: true}, Turn{Key: k, Explicit: true}, true},
	} {
		l := New(life)
		answered(l, c.kind, 1, start)
		if _, got := l.Asked(c.turn, start.Add(time.Second)); got != c.want {
			t.Errorf("%s: continues %v, want %v", name, got, c.want)
		}
		if _, again := l.Asked(c.turn, start.Add(2*time.Second)); again {
			t.Errorf("%s: continued twice", name)
		}
	}
}

// completionOf is a text completion of a prompt as the learner is told of it, under one key for all that begin with the same instruction.
func completionOf(t *testing.T, prompt string) (all body.Beginning, turn Turn) {
	t.Helper()
	req, err := body.ParseRequest(body.Text, fmt.Appendf(nil, `{"model":"m","prompt":%q}`, prompt))
	if err != nil {
		t.Fatal(err)
	}
	return req.Prompt().Beginning(), Turn{Key: key(2), Earlier: []convcache.Key{key(1)}, GoesOn: req.Prompt().GoesOn()}
}

// Completions that begin with the same instruction continue nothing, and each of them is known. One that goes on with an answered prompt does,
// however many others wait under the same key.
func TestLearner_CompletionsOfOneInstruction(t *testing.T) {
	l, at, instruction := New(life), start, strings.Repeat("Classify what follows. ", 40)
	for i := range 100 {
		all, turn := completionOf(t, fmt.Sprintf("%s%d: %s", instruction, i, strings.Repeat("praise ", i%9)))
		if after, known := l.Asked(turn, at); known {
			t.Fatalf("completion %d continues an answer after %v", i, after)
		}
		l.Answered("", "t", Kind{API: body.Text}, key(1+i%2), all, at) // of two lengths, as keys tell them apart
		at = at.Add(10 * time.Millisecond)
	}
	if c := l.Curve("t", Kind{API: body.Text}, at.Add(Fixed)); c.Known != 100 {
		t.Errorf("%d answers are known, want all", c.Known)
	}
	for i := range 100 {
		prompt := fmt.Sprintf("%s%d: %s", instruction, i, strings.Repeat("praise ", i%9))
		_, turn := completionOf(t, prompt)
		if _, again := l.Asked(turn, at); again {
			t.Errorf("completion %d, sent again, is its own continuation", i)
		}
		_, turn = completionOf(t, prompt+"Praise. And this?")
		if _, known := l.Asked(turn, at); !known {
			t.Errorf("the continuation of completion %d is none", i)
		}
		if _, again := l.Asked(turn, at); again {
			t.Errorf("completion %d is continued twice", i)
		}
	}
	if len(l.pending) != 0 || l.oldest.Len != 0 {
		t.Errorf("%d keys and %d answers wait", len(l.pending), l.oldest.Len)
	}
}

func TestLearner_ForgetsAfterAnHour(t *testing.T) {
	l := New(life)
	for i := range 100 {
		answered(l, chat, i, start)
		continued(l, i, start.Add(time.Second))
	}
	if c := l.Curve("", chat, start.Add(44*time.Minute)); c.Known != 100 {
		t.Errorf("%d known after 44 minutes", c.Known)
	}
	if c := l.Curve("", chat, start.Add(time.Hour)); c.Known != 0 {
		t.Errorf("%d known after an hour", c.Known)
	}
}

// A continuation after the life of a ticket is none.
func TestLearner_TooLate(t *testing.T) {
	l := New(life)
	answered(l, chat, 1, start)
	if after, known := continued(l, 1, start.Add(life)); known {
		t.Errorf("continued after %v", after)
	}
	if c := l.Curve("", chat, start.Add(life)); c.Known != 1 || c.later(0) > 0.5 {
		t.Errorf("%d known, chance %.2f", c.Known, c.later(0))
	}
}

func TestLearner_IsBounded(t *testing.T) {
	l, at := New(life), start
	l.Answered("quiet", "", chat, key(-1), body.Beginning{}, at)
	for i := range 3 * maxPending {
		at = at.Add(time.Microsecond)
		answered(l, chat, i, at)
	}
	if _, known := continued(l, -1, at); !known {
		t.Error("answers of one account have displaced that of another")
	}
	l.Answered("quiet", "", chat, key(-1), body.Beginning{}, at)
	if n := len(l.pending); n != maxPending || l.oldest.Len != n {
		t.Errorf("%d answers wait, want %d", n, maxPending)
	}
	if _, known := continued(l, 3*maxPending-1, at); !known {
		t.Error("the newest answer was forgotten")
	}
	for i := range 3 * maxKinds { // invented tenants, of whom nothing was learnt yet
		l.Answered("inventor", key(i).String(), chat, key(i), body.Beginning{}, at)
	}
	if n := len(l.kinds); n != maxKinds || l.recent.Len != n || l.Curve("", chat, at).Known == 0 {
		t.Errorf("%d kinds, want %d, and that of the quiet tenant", n, maxKinds)
	}
	waiting := 0
	for _, h := range l.kinds {
		for i := range h.waiting {
			waiting += h.waiting[i].Len()
		}
	}
	if waiting != len(l.pending) || waiting != l.oldest.Len {
		t.Errorf("%d answers wait in histories, %d by their keys, %d in order", waiting, len(l.pending), l.oldest.Len)
	}
}

// Beyond the bound the answer that waits longest is forgotten, of whichever kind and age it is.
func TestLearner_ForgetsTheOldestFirst(t *testing.T) {
	l, at := New(life), start
	kinds := []Kind{{API: body.Chat}, {API: body.Chat, Tools: true}, {API: body.Text, Explicit: true}}
	for i := range maxPending + 3 {
		at = at.Add(10 * time.Millisecond) // those of the beginning have moved to later spans when the bound is reached
		answered(l, kinds[i%len(kinds)], i, at)
	}
	for i, want := range map[int]bool{0: false, 2: false, 3: true, 5: true, maxPending: true, maxPending + 2: true} {
		if _, known := continued(l, i, at); known != want {
			t.Errorf("answer %d is known: %t, want %t", i, known, want)
		}
	}
}

// Each of four replicas sees a quarter of the continuations of its answers, and finds in the store what the others have left.
func TestLearner_CoverageOfReplicas(t *testing.T) {
	l, at := New(life), start
	for i := range 2000 { // 4 of 5 are continued, a quarter of them here
		answered(l, chat, i, at)
		at = at.Add(100 * time.Millisecond)
		if i%5 == 0 {
			l.Asked(Turn{Key: key(-2 - i), Earlier: []convcache.Key{key(i)}, Found: true}, at)
			for range 3 {
				l.Asked(Turn{Key: key(-2 - i), Earlier: []convcache.Key{key(1_000_000 + i)}, Found: true}, at)
			}
		}
	}
	if c := l.Curve("", chat, at); math.Abs(c.later(0)-0.8) > 0.08 {
		t.Errorf("chance %.2f, want 0.8", c.later(0))
	}
}

func TestWaitsTo(t *testing.T) {
	for _, longest := range []time.Duration{50 * time.Millisecond, 3 * time.Second, life, 24 * time.Hour} {
		bounds := waitsTo(longest)
		if len(bounds) > maxSpans+1 || bounds[0] != 0 || bounds[len(bounds)-1] != longest {
			t.Errorf("%v: %v", longest, bounds)
		}
		for i := 1; i < len(bounds); i++ {
			if bounds[i] <= bounds[i-1] {
				t.Errorf("%v: %v", longest, bounds)
			}
		}
	}
}
