package handback

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/talk"
)

// good is a row of 100 conversations of two turns that leaves nothing to wish for.
func good(name string) *outcome {
	r := &outcome{
		clock: 10, capacity: 1_000_000, pinned: 4_000_000, span: 100 * time.Second,
		counted: fleet.Counts{Prompt: 200_000, Computed: 50_000, HandBacks: 190, HandBackTokens: 150_000, HandBackComputed: 500},
		firsts:  &fleet.Counts{Prompt: 80_000, Computed: 40_000, HandBacks: 100},
	}
	for _, m := range modes() {
		if m.name == name {
			r.mode = m
		}
	}
	for n := range 200 {
		r.turns = append(r.turns, talk.Turn{Next: n%2 == 1, TTFT: 10 * time.Millisecond, Reuse: "hit;proof=engine", Prompt: 1000, Answer: 100, Before: n % 2 * 1100})
	}
	return r
}

// goodOff pins so much that decode has room for half of the streams.
func goodOff() *outcome {
	r := good(rowOff)
	r.pinned, r.counted.HandBacks, r.counted.HandBackTokens, r.counted.HandBackComputed = 50_000_000, 0, 0, 0
	return r
}

func TestJudge_EachBar(t *testing.T) {
	for _, tc := range []struct {
		name    string
		row     string
		spoil   func(*outcome)
		failing string // "" if all hold
	}{
		{"good", rowIdle, func(*outcome) {}, ""},
		{"pins a tenth", rowIdle, func(r *outcome) { r.pinned = 5_000_000 }, ""},
		{"pins more than a tenth", rowIdle, func(r *outcome) { r.pinned = 5_000_001 }, "fall of pinned"},
		{"too few streams", rowNow, func(r *outcome) { r.capacity = 700_000 }, "streams"},
		{"hits a block less", rowIdle, func(r *outcome) { r.counted.Computed += 200 * blockSize }, ""},
		{"hits less than that", rowIdle, func(r *outcome) { r.counted.Computed += 200*blockSize + 1 }, "hit rate"},
		{"a tenth slower", rowNow, func(r *outcome) { r.slow(11 * time.Millisecond) }, ""},
		{"slower than that", rowNow, func(r *outcome) { r.slow(11*time.Millisecond + 1) }, "p95"},
		{"without ids, slower", rowAnonymous, func(r *outcome) { r.slow(time.Second) }, ""},
		{"without ids, hits less", rowAnonymous, func(r *outcome) { r.counted.Computed = 79_999 }, ""},
		{"without ids, hits too little", rowAnonymous, func(r *outcome) { r.counted.Computed = 80_001 }, "clients with ids"},
		{"without ids, pins", rowAnonymous, func(r *outcome) { r.pinned = 9_000_000 }, "fall of pinned"},
		{"late, recalls", rowLate, func(r *outcome) { r.counted.Prompt, r.counted.Computed = 200_000, 56_000 }, ""},
		{"late, forgets", rowLate, func(r *outcome) { r.counted.Computed = 58_000 }, "not computed"},
		{"late, not seen", rowLate, func(r *outcome) { r.firsts = nil }, "not computed"},
		{"late, pins", rowLate, func(r *outcome) { r.pinned = 1e9 }, ""},
		{"a leg for each turn", rowNow, func(r *outcome) { r.counted.HandBacks = 200 }, ""},
		{"more legs", rowNow, func(r *outcome) { r.counted.HandBacks = 201 }, "for each turn"},
		{"busy", rowIdle, func(r *outcome) { r.counted.HandBackComputed = 1100 }, "what prefill computes"},
		{"leases", rowIdle, func(r *outcome) { r.counted.Leased = 1 }, "lease"},
		{"misuse", rowOff, func(r *outcome) { r.counted.Misuse = 1 }, "misuse"},
		{"wrong", rowLateOff, func(r *outcome) { r.turns[7].Wrong = true }, "wrong"},
		{"failed", rowIdle, func(r *outcome) { r.turns[7].Err = errors.New("broke off") }, "broke off"},
		{"nothing spoken", rowLateOff, func(r *outcome) { r.turns, r.counted.HandBacks = nil, 0 }, "turns is 0"},
	} {
		rows := map[string]*outcome{}
		for _, m := range modes() {
			rows[m.name] = good(m.name)
		}
		rows[rowOff], rows[rowLate].counted.Computed = goodOff(), 50_000
		tc.spoil(rows[tc.row])
		var failing []string
		for _, b := range judge(rows) {
			if !b.Holds() {
				failing = append(failing, b.String())
			}
		}
		if tc.failing == "" && failing != nil || tc.failing != "" && (len(failing) != 1 || !strings.Contains(failing[0], tc.failing) || !strings.Contains(failing[0], "FAILS  "+tc.row)) {
			t.Errorf("%s: %q, want %q", tc.name, failing, tc.failing)
		}
	}
}

func (r *outcome) slow(ttft time.Duration) {
	for i := range r.turns {
		r.turns[i].TTFT = ttft
	}
}

func TestJudge_OfOneRowComparesNothing(t *testing.T) {
	if bars := judge(map[string]*outcome{rowIdle: good(rowIdle)}); len(bars) != len(good(rowIdle).sound()) {
		t.Errorf("%d bars: %v", len(bars), bars)
	}
}

func TestTTFT_IsThePercentileOfNextTurnsInEngineTime(t *testing.T) {
	r := outcome{clock: 10}
	for n := 20; n >= 1; n-- {
		r.turns = append(r.turns, talk.Turn{Next: true, TTFT: time.Duration(n) * time.Millisecond}, talk.Turn{TTFT: time.Hour})
	}
	r.turns = append(r.turns, talk.Turn{Next: true, Err: errors.New("broke off")})
	for share, want := range map[float64]time.Duration{0.5: 100, 0.95: 190, 1: 200, 0: 10} {
		if got := r.ttft(share); got != want*time.Millisecond {
			t.Errorf("share %v: %v, want %v", share, got, want*time.Millisecond)
		}
	}
	if got := (&outcome{clock: 1}).ttft(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestPlan_IsTheSameForEveryMode(t *testing.T) {
	o := options{conversations: 300, over: time.Minute}
	named, nameless := plan(o, mode{}), plan(o, mode{anonymous: true})
	var thinks int
	for i := range named {
		if named[i].ID == "" || nameless[i].ID != "" || !reflect.DeepEqual(named[i].Turns, nameless[i].Turns) || named[i].Begins != nameless[i].Begins {
			t.Fatalf("conversation %d differs", i)
		}
		for _, q := range named[i].Turns[1:] {
			if q.Think > longestThink || q.Think <= 0 {
				t.Errorf("it thinks for %v", q.Think)
			}
			if q.Think < usualThink {
				thinks++
			}
		}
	}
	if thinks < 250 || thinks > 350 {
		t.Errorf("%d of 600 thinks are shorter than the median", thinks)
	}
	late := plan(o, mode{late: true})
	if len(late) != 75 || len(late[0].Turns) != 2 || late[0].Turns[1].Think != lateThink {
		t.Errorf("late: %d conversations of %d turns", len(late), len(late[0].Turns))
	}
}
