package bench

import (
	"testing"
	"time"

	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/result"
)

func TestMediansOf_TakesEachFigureByItself(t *testing.T) {
	got := mediansOf([]figures{{cpuTurn: 1, turnRate: 4}, {cpuTurn: 5, turnRate: 1, peakMB: 3}, {cpuTurn: 3, turnRate: 2}, {turnRate: 100}})
	if len(got) != 3 || got[cpuTurn] != 3 || got[turnRate] != 3 || got[peakMB] != 3 {
		t.Errorf("got %v", got)
	}
}

func TestFiguresOf(t *testing.T) {
	o := load.Outcome{Wall: 2 * time.Second, Turns: 1000, Chunks: 16000, Hits: 750, HandOvers: 1000, CPU: 100 * time.Millisecond, Peak: 30 << 20,
		FirstByte: result.Samples{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond}, Gaps: result.Samples{20 * time.Millisecond}}
	fast := load.Workload{Conversations: 64, Turns: 8, Chunks: 16}
	want := figures{cpuTurn: 100, turnRate: 500, hitPercent: 75, firstP50: 2000, peakMB: 30}
	got := figuresOf(fast, o)
	delete(got, firstP99)
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: got %g, want %g", name, got[name], value)
		}
	}
	slow := fast
	slow.Gap = tokenGap
	if got := figuresOf(slow, o); got[cpuChunk] != 6.25 || got[chunkRate] != 8000 || got[gapP99] != 20 || got[cpuTurn] != 0 || got[turnRate] != 0 {
		t.Errorf("with pauses: got %v", got)
	}
	open := slow
	open.Open = true
	o.Base, o.Held, o.Streams = 10<<20, 30<<20, 1024
	if got := figuresOf(open, o); got[streamKB] != 20 || got[chunkRate] != 0 {
		t.Errorf("held: got %v", got)
	}
	if got := figuresOf(fast, load.Outcome{}); len(got) != 0 {
		t.Errorf("of nothing: got %v", got)
	}
}
