package main

import (
	"context"
	"testing"
	"time"
)

// TestLoad_Direct runs each kind of workload against the engines themselves: every answer is as it should be, every turn but the first of
// a conversation reuses what decode holds, and the engines have seen no fault.
func TestLoad_Direct(t *testing.T) {
	const brief = 500 * time.Millisecond // many turns on a busy machine too
	for _, w := range []workload{
		{Name: "closed", Stream: true},
		{Name: "closed, of vLLM 0.32", Stream: true, VLLM: vllm032},
		{Name: "closed, in one piece"},
		{Name: "closed, paced", Stream: true, Gap: 2 * time.Millisecond},
		{Name: "in one piece, paced", Gap: time.Millisecond},
		{Name: "plug-in", Stream: true, IDs: idsOfPlug},
		{Name: "ids of chunks", Stream: true, IDs: idsOfChunk},
		{Name: "open loop", Stream: true, Rate: 200},
		{Name: "held", Stream: true, Open: true, Gap: 5 * time.Millisecond},
		{Name: "large", Stream: true, First: 100 << 10},
	} {
		t.Run(w.Name, func(t *testing.T) {
			w.Conversations, w.Turns, w.Later, w.Chunks = 5, 4, [2]int{40, 400}, 6
			w.Time, w.WarmUp, w.First = brief, brief/3, max(w.First, 500)
			if w.Open {
				w.Chunks = 1000 // it ends by leaving
			}
			e := startEngines(t, w.pace())
			var calls []string
			note := func(call string) func() { return func() { calls = append(calls, call) } }
			l := &load{workload: w, direct: e, begin: note("begin"), end: note("end"), held: note("held")}
			o, err := l.run(t.Context())
			if err != nil || o.Errors > 0 || o.Why != "" {
				t.Fatalf("%v, %d errors, %s", err, o.Errors, o.Why)
			}
			checkOutcome(t, &w, &o, calls)
			f, counts := mustFaults(t, e)
			if f.any() {
				t.Errorf("faults %+v", f)
			}
			if !w.Open && counts.Hits == 0 || counts.Decodes != counts.Prefills {
				t.Errorf("counts %+v", counts)
			}
		})
	}
}

func checkOutcome(t *testing.T, w *workload, o *outcome, calls []string) {
	t.Helper()
	want := 2
	if w.Open {
		want = 3
		if o.Streams != w.Conversations {
			t.Errorf("%d streams were open, want %d", o.Streams, w.Conversations)
		}
	} else if o.Turns == 0 || len(o.Whole) != o.Turns || len(o.FirstByte) != o.Turns {
		t.Errorf("%d turns, %d and %d samples", o.Turns, len(o.Whole), len(o.FirstByte))
	}
	if len(calls) != want || calls[0] != "begin" || calls[want-1] != "end" {
		t.Errorf("calls %v", calls)
	}
	if w.Stream && (o.Chunks == 0 || len(o.Gaps) == 0) || o.Wall < w.Time {
		t.Errorf("%d chunks, %d gaps in %v", o.Chunks, len(o.Gaps), o.Wall)
	}
}

// TestLoad_OneHop sends turns to decode alone, as a proxy without prefill does.
func TestLoad_OneHop(t *testing.T) {
	e := startEngines(t, pace{Chunks: 6, IDs: noIDs, VLLM: vllm032}) // whose streams have no params without a hand-over
	w := workload{Conversations: 3, Turns: 3, First: 100, Later: [2]int{20, 20}, Chunks: 6, Stream: true, Time: 500 * time.Millisecond}
	l := &load{workload: w, url: e.Decode, hides: true}
	o, err := l.run(t.Context())
	if err != nil || o.Errors > 0 || o.Turns == 0 {
		t.Fatalf("%v, %d errors (%s), %d turns", err, o.Errors, o.Why, o.Turns)
	}
	if f, counts := mustFaults(t, e); f.any() || counts.Alone == 0 || counts.Decodes > 0 {
		t.Errorf("faults %+v, counts %+v", f, counts)
	}
}

// TestLoad_NoticesWrongAnswers has the engines say less than a turn expects.
func TestLoad_NoticesWrongAnswers(t *testing.T) {
	for _, stream := range []bool{true, false} {
		e := startEngines(t, pace{Chunks: 4, IDs: noIDs})
		w := workload{Conversations: 2, Turns: 3, First: 100, Chunks: 6, Stream: stream, Time: 500 * time.Millisecond}
		l := &load{workload: w, direct: e}
		o, err := l.run(t.Context())
		if err != nil || o.Errors == 0 || o.Turns > 0 || o.Why == "" {
			t.Errorf("stream %v: %v, %d errors (%q), %d turns", stream, err, o.Errors, o.Why, o.Turns)
		}
	}
}

// TestLoad_Ends ends a run from outside.
func TestLoad_Ends(t *testing.T) {
	e := startEngines(t, pace{Chunks: 6, IDs: noIDs})
	for _, open := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		w := workload{Conversations: 2, Turns: 3, First: 100, Chunks: 6, Stream: true, Time: time.Hour, Open: open}
		l := &load{workload: w, direct: e, begin: cancel}
		if _, err := l.run(ctx); err == nil {
			t.Errorf("open %v: no error", open)
		}
	}
	if _, err := (&load{}).run(t.Context()); err == nil {
		t.Error("an empty workload makes sense")
	}
}

// TestSchedule_DoesNotWaitForTurns checks that turns are due by the clock, however few are taken.
func TestSchedule_DoesNotWaitForTurns(t *testing.T) {
	r := &run{load: &load{workload: workload{Rate: 1000}}, stopped: make(chan struct{}), due: make(chan time.Time, 16)}
	from := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.schedule(t.Context(), from)
	}()
	for n := range 40 {
		due, ok := r.turnDue(t.Context())
		if want := from.Add(time.Duration(n) * time.Millisecond); !ok || !due.Equal(want) {
			t.Fatalf("turn %d was due at %v, want %v", n, due.Sub(from), want.Sub(from))
		}
	}
	close(r.stopped)
	<-done
}
