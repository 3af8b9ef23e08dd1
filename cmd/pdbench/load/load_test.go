package load

import (
	"context"
	"testing"
	"time"

	"carryover/cmd/pdbench/engines"
)

// TestLoad_Direct runs each kind of workload against the engines themselves: every answer is as it should be, every turn but the first of
// a conversation reuses what decode holds, and the engines have seen no fault.
func TestLoad_Direct(t *testing.T) {
	const oneHop = "one hop"
	const brief = 500 * time.Millisecond // many turns on a busy machine too
	for _, w := range []Workload{
		{Name: "closed", Stream: true},
		{Name: "closed, of vLLM 0.32", Stream: true, VLLM: engines.VLLM032},
		{Name: "closed, in one piece"},
		{Name: "closed, paced", Stream: true, Gap: 2 * time.Millisecond},
		{Name: "in one piece, paced", Gap: time.Millisecond},
		{Name: "ids of chunks", Stream: true, ChunkIDs: true},
		{Name: "held", Stream: true, Open: true, Gap: 5 * time.Millisecond},
		{Name: "large", Stream: true, First: 100 << 10},
		{Name: oneHop, Stream: true, VLLM: engines.VLLM032}, // whose streams have no params without a hand-over
	} {
		t.Run(w.Name, func(t *testing.T) {
			w.Conversations, w.Turns, w.Later, w.Chunks = 5, 4, [2]int{40, 400}, 6
			w.Time, w.WarmUp, w.First = brief, brief/3, max(w.First, 500)
			if w.Open {
				w.Chunks = 1000 // it ends by leaving
			}
			e := serveLoaded(t, w.Pace())
			var calls []string
			note := func(call string) func() { return func() { calls = append(calls, call) } }
			l := &Clients{Workload: w, Direct: e, Begin: note("begin"), End: note("end"), Held: note("held")}
			if w.Name == oneHop { // to decode alone, as a proxy without prefill does
				l.Direct, l.URL, l.Hides = nil, e.Decode, true
			}
			o, err := l.Run(t.Context())
			if err != nil || o.Errors > 0 || o.Why != "" {
				t.Fatalf("%v, %d errors, %s", err, o.Errors, o.Why)
			}
			want := 2
			if w.Open {
				want = 3
				if o.Streams != w.Conversations {
					t.Errorf("%d streams were open, want %d", o.Streams, w.Conversations)
				}
			} else if o.Turns == 0 || len(o.FirstByte) != o.Turns {
				t.Errorf("%d turns, %d samples", o.Turns, len(o.FirstByte))
			}
			if len(calls) != want || calls[0] != "begin" || calls[want-1] != "end" {
				t.Errorf("calls %v", calls)
			}
			if w.Stream && (o.Chunks == 0 || len(o.Gaps) == 0) || o.Wall < w.Time {
				t.Errorf("%d chunks, %d gaps in %v", o.Chunks, len(o.Gaps), o.Wall)
			}
			f, counts, err := e.Faults(t.Context())
			if err != nil || f.Any() {
				t.Errorf("faults %+v, %v", f, err)
			}
			if !w.Open && (counts.Hits == 0) != (w.Name == oneHop) || counts.Decodes != counts.Prefills || (counts.Alone > 0) != (w.Name == oneHop) {
				t.Errorf("counts %+v", counts)
			}
		})
	}
}

func nothing() {}

// TestLoad_NoticesWrongAnswers has the engines say less than a turn expects.
func TestLoad_NoticesWrongAnswers(t *testing.T) {
	for _, stream := range []bool{true, false} {
		e := serveLoaded(t, engines.Pace{Chunks: 4})
		w := Workload{Conversations: 2, Turns: 3, First: 100, Chunks: 6, Stream: stream, Time: 500 * time.Millisecond}
		l := &Clients{Workload: w, Direct: e, Begin: nothing, End: nothing}
		o, err := l.Run(t.Context())
		if err != nil || o.Errors == 0 || o.Turns > 0 || o.Why == "" {
			t.Errorf("stream %v: %v, %d errors (%q), %d turns", stream, err, o.Errors, o.Why, o.Turns)
		}
	}
}

// TestLoad_Ends ends a run from outside.
func TestLoad_Ends(t *testing.T) {
	e := serveLoaded(t, engines.Pace{Chunks: 6})
	for _, open := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		w := Workload{Conversations: 2, Turns: 3, First: 100, Chunks: 6, Stream: true, Time: time.Hour, Open: open}
		l := &Clients{Workload: w, Direct: e, Begin: cancel, End: nothing, Held: nothing}
		if _, err := l.Run(ctx); err == nil {
			t.Errorf("open %v: no error", open)
		}
	}
	if _, err := (&Clients{}).Run(t.Context()); err == nil {
		t.Error("an empty workload makes sense")
	}
}
