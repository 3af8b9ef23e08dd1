package upstream

import (
	"testing"
	"time"

	"carryover/convcache/clocktest"
)

// step is what a connection sees, and when: after so long since the leg began.
type step struct {
	at   time.Duration
	what string // empty, bytes, read (of what may be left in a buffer), fresh read
	want time.Duration
}

func TestArrival_WhatAnEmptyConnectionProves(t *testing.T) {
	const second = time.Second
	for name, steps := range map[string][]step{
		"of a whole answer": {
			{1 * second, "empty", 1 * second}, {2 * second, "empty", 2 * second}, {3 * second, "bytes", 2 * second},
			{4 * second, "empty", 2 * second}, {5 * second, "empty", 2 * second},
		},
		"of a stream": {
			{1 * second, "empty", 1 * second}, {1 * second, "bytes", 1 * second}, {1 * second, "read", 1 * second},
			{2 * second, "empty", 1 * second}, {2 * second, "fresh read", 1 * second}, {3 * second, "empty", 3 * second},
			{4 * second, "bytes", 3 * second}, {5 * second, "empty", 3 * second}, {6 * second, "bytes", 3 * second},
		},
		"before the leg, nothing": {{-second, "empty", 0}, {0, "empty", 0}},
		// What the engine could not send while nothing was read comes after that.
		"after a pause, nothing": {
			{1 * second, "empty", 1 * second}, {60 * second, "empty", 1 * second}, {61 * second, "bytes", 1 * second},
		},
		"after a pause, until as long again": {
			{1 * second, "empty", 1 * second}, {11 * second, "empty", 1 * second}, {12 * second, "empty", 1 * second},
			{13 * second, "empty", 1 * second}, {15 * second, "empty", 1 * second}, {17 * second, "empty", 1 * second},
			{19 * second, "empty", 1 * second}, {20 * second, "empty", 1 * second}, {21 * second, "empty", 21 * second},
		},
		"after a pause, the next leg": {{10 * second, "empty", 0}, {11 * second, "leg", 11 * second}, {12 * second, "empty", 12 * second}},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			var a arrival
			a.begin(began)
			for i, s := range steps {
				switch at := began.Add(s.at); s.what {
				case "empty":
					a.empty(at)
				case "bytes":
					a.seen()
				case "read", "fresh read":
					a.next(s.what == "fresh read")
				case "leg":
					a.begin(at)
				}
				if got := a.last().Sub(began); got != s.want {
					t.Fatalf("step %d, %s at %v: caught up at %v, want %v", i, s.what, s.at, got, s.want)
				}
			}
		})
	}
}

// While a machine is suspended its kernel takes nothing in either.
func TestArrival_ASuspendedMachineFindsNoProofAtOnce(t *testing.T) {
	began := time.Now()
	var a arrival
	a.begin(began)
	awake := clocktest.Apart(t, began.Add(time.Second), time.Hour)
	a.empty(awake)
	a.seen()
	if got := a.last(); !got.Equal(began) {
		t.Errorf("caught up %v before it woke, want the moment before it slept", awake.Sub(got))
	}
}
