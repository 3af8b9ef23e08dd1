package journal_test

import (
	"slices"
	"testing"
	"time"

	"carryover/server/journal"
	"carryover/server/record"
)

// hit is the record of a streamed hit that spared prefill so many tokens and so much time.
func hit(ttft time.Duration, read int, saved time.Duration) *record.Turn {
	r := turnOf(0)
	r.Path.Way, r.TTFT = record.WayPrefillDecode, ttft
	r.Reuse = record.Reuse{Continues: true, Hit: true, Offered: read, Read: read, Saved: saved, Cached: -1}
	return r
}

func timed(h journal.Histogram) (turns uint64) {
	for _, n := range h.Counts {
		turns += n
	}
	return turns
}

// Hits are compared with the same turns, and with nothing else.
func TestTotals_CompareHitsWithTheSameTurnsWithoutReuse(t *testing.T) {
	j := journal.New(journal.Config{})
	j.Observe(hit(100*time.Millisecond, 1000, 400*time.Millisecond))
	j.Observe(hit(30*time.Millisecond, 0, 0)) // prefill had all of it anyway
	j.Observe(hit(50*time.Millisecond, 1000, 0))
	whole := hit(0, 1000, 400*time.Millisecond)
	whole.Whole = 7 * time.Second
	j.Observe(whole)
	first := turnOf(1)
	first.TTFT = 40 * time.Second
	j.Observe(first)

	got := j.Totals()
	if timed(got.TTFTHits) != 2 || got.TTFTHits.Sum != 130 {
		t.Errorf("hits: %+v, want those of 100 and 30 ms: the others have no speed to compare with, no first token, or are no hits", got.TTFTHits)
	}
	if timed(got.TTFTHitsWithout) != 2 || got.TTFTHitsWithout.Sum != 530 {
		t.Errorf("the same without reuse: %+v, want 500 and 30 ms", got.TTFTHitsWithout)
	}
	if timed(got.TTFTStreams) != 4 || got.TTFTStreams.Sum != 40_180 {
		t.Errorf("streams: %+v", got.TTFTStreams)
	}
	if timed(got.WholeAnswers) != 1 || got.WholeAnswers.Sum != 7000 {
		t.Errorf("whole answers: %+v", got.WholeAnswers)
	}
	if at, _ := slices.BinarySearch(journal.Bounds(), 500); got.TTFTHitsWithout.Counts[at] != 1 {
		t.Errorf("the same without reuse: %v by bucket", got.TTFTHitsWithout.Counts)
	}
	if r := j.Recent(2); r[1].TTFT != 0 || r[1].Whole != 7000 || !r[1].FollowUp || r[0].TTFT != 40_000 || r[0].Whole != 0 || r[0].FollowUp {
		t.Errorf("records: %+v", r)
	}
}

func TestJournal_KeepsAnHourByTheMinute(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 30, 0, time.UTC)
	j := journal.New(journal.Config{Now: func() time.Time { return now }})
	hit := &record.Turn{
		Reuse: record.Reuse{Hit: true, Continues: true, Read: 700, Saved: 90 * time.Millisecond}, TTFT: 10 * time.Millisecond,
	}
	whole := &record.Turn{Reuse: record.Reuse{Hit: true, Continues: true, Read: 300}}
	opening := &record.Turn{Reuse: record.Reuse{Reason: record.ReasonFirstTurn}, TTFT: 500 * time.Millisecond}
	for range 3 {
		j.Observe(hit)
	}
	j.Observe(whole)
	j.Observe(opening)
	want := journal.Minute{At: now.Truncate(time.Minute), Sums: journal.Sums{Turns: 5, FollowUps: 4, Hits: 4, SavedTokens: 2400}, Timed: 3, TTFT: 30, Without: 300}
	if got := j.Hour(time.Time{}); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for range 90 {
		now = now.Add(time.Minute)
		j.Observe(opening)
	}
	got := j.Hour(time.Time{})
	if len(got) != 60 || !got[0].At.Equal(now.Truncate(time.Minute).Add(-59*time.Minute)) || !got[59].At.Equal(now.Truncate(time.Minute)) || got[59].Turns != 1 {
		t.Errorf("%d minutes, from %v to %v", len(got), got[0].At, got[len(got)-1].At)
	}
	if since := j.Hour(got[58].At); len(since) != 2 || since[1] != got[59] {
		t.Errorf("since the minute before: %+v", since)
	}
	now = now.Add(59*time.Minute + 30*time.Second)
	if got := j.Hour(time.Time{}); len(got) != 0 {
		t.Errorf("after an hour without turns: %+v", got)
	}
}
