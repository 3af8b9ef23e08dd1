package journal_test

import (
	"testing"
	"time"

	"carryover/server/journal"
	"carryover/server/record"
)

func TestJournal_KeepsAnHourByTheMinute(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 30, 0, time.UTC)
	j := journal.New(journal.Config{Now: func() time.Time { return now }})
	hit := &record.Turn{
		Reuse: record.Reuse{Hit: true, Continues: true, Read: 700, Saved: 90 * time.Millisecond}, Times: record.Times{TTFT: 10 * time.Millisecond},
	}
	whole := &record.Turn{Reuse: record.Reuse{Hit: true, Continues: true, Read: 300}}
	opening := &record.Turn{Reuse: record.Reuse{Reason: record.ReasonFirstTurn}, Times: record.Times{TTFT: 500 * time.Millisecond}}
	for range 3 {
		j.Observe(hit)
	}
	j.Observe(whole)
	j.Observe(opening)
	want := journal.Minute{At: now.Truncate(time.Minute), Turns: 5, FollowUps: 4, Hits: 4, SavedTokens: 2400, Timed: 3, TTFT: 30, Without: 300}
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
