package journal_test

import (
	"fmt"
	"strings"
	"testing"

	"carryover/server/journal"
	"carryover/server/record"
)

func TestSince_TellsEachTurnOnceAndInOrder(t *testing.T) {
	j := journal.New(journal.Config{Turns: 5})
	for n := range 8 {
		j.Observe(&record.Turn{Turn: fmt.Sprint(n + 1), Reuse: record.Reuse{Hit: n%2 == 0, Reason: record.ReasonFirstTurn}})
	}
	for _, tc := range []struct {
		after uint64
		most  int
		want  string
	}{
		{0, 100, "4 5 6 7 8"}, // the others are kept no more
		{5, 100, "6 7 8"},
		{5, 2, "7 8"},
		{8, 100, ""},
		{9, 100, ""},
		{0, 0, ""},
	} {
		got := ""
		records, totals := j.Since(tc.after, tc.most)
		for _, r := range records {
			if r.Turn != fmt.Sprint(r.Number) {
				t.Errorf("turn %s has the number %d", r.Turn, r.Number)
			}
			got += " " + r.Turn
		}
		if got = strings.TrimSpace(got); got != tc.want || totals.Turns != 8 || totals.Hits != 4 || totals.Misses["first_turn"] != 4 {
			t.Errorf("since %d, at most %d: got %q, want %q; totals %+v", tc.after, tc.most, got, tc.want, totals)
		}
	}
}
