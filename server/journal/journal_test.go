package journal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"carryover/server/journal"
	"carryover/server/record"
	"carryover/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// turnOf is the record of the nth turn.
func turnOf(n int) *record.Turn {
	return &record.Turn{
		Turn: fmt.Sprint("turn-", n), Asked: record.Asked{Conversation: fmt.Sprint("c", n%3), Model: "m"},
		Reuse: record.Reuse{Reason: record.ReasonFirstTurn, Cached: -1}, Status: 200,
		Answer: record.Answer{PromptTokens: -1, CompletionTokens: -1},
	}
}

// traceOf is the context of a turn whose spans are kept. Its trace's id begins so.
func traceOf(begins ...byte) trace.SpanContext {
	var id trace.TraceID
	copy(id[:], begins)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
}

func TestJournal_KeepsTheLastTurnsNewestFirst(t *testing.T) {
	j := journal.New(journal.Config{Turns: 10})
	if got := j.Recent(5); got == nil || len(got) != 0 {
		t.Errorf("an empty journal: %v, want an empty list", got)
	}
	for n := range 25 {
		j.Observe(turnOf(n))
		for _, most := range []int{0, 1, 7, 100} {
			got := j.Recent(most)
			if len(got) != min(most, n+1, 10) {
				t.Fatalf("after %d turns: %d records of at most %d", n+1, len(got), most)
			}
			for i, r := range got {
				if r.Turn != fmt.Sprint("turn-", n-i) {
					t.Fatalf("after %d turns, record %d is of %s", n+1, i, r.Turn)
				}
			}
		}
	}
	got := j.Conversation("c1")
	if len(got) != 3 || got[0].Turn != "turn-22" || got[2].Turn != "turn-16" {
		t.Errorf("turns of a conversation: %+v", got)
	}
	if got := j.Conversation("c9"); len(got) != 0 {
		t.Errorf("turns of no conversation: %+v", got)
	}
	j.Observe(&record.Turn{})
	if got := j.Conversation(""); len(got) != 0 {
		t.Errorf("turns without a conversation are nobody's: %+v", got)
	}
}

// Turns are hits, prefixes and misses by reason, and those that wanted none, whatever turns there are.
func TestTotals_AddUp(t *testing.T) {
	j := journal.New(journal.Config{})
	observe := func(reuse record.Reuse, status int, code string, leg *upstream.LegError) {
		r := turnOf(0)
		r.Reuse, r.Status, r.Code = reuse, status, code
		if leg != nil {
			r.Err = fmt.Errorf("turn: %w", leg)
		}
		j.Observe(r)
	}
	observe(record.Reuse{Continues: true, Hit: true, Offered: 100, Read: 40, Saved: time.Second, Cached: 90}, 200, "", nil)
	observe(record.Reuse{Off: true, Continues: true}, 200, "", nil) // it wants no reuse all the same
	observe(record.Reuse{Reason: "a", Continues: true}, 502, "prefill_failed", nil)
	observe(record.Reuse{Reason: "a"}, 400, "invalid_request", &upstream.LegError{Kind: upstream.Status, Status: 400}) // the client's fault
	observe(record.Reuse{Reason: "b", Continues: true, Prefix: 16}, 200, "", &upstream.LegError{Kind: upstream.Broken})
	got := j.Totals()
	want := got
	want.Sums = journal.Sums{Turns: 5, Hits: 1, FollowUps: 3, SavedTokens: 40, FollowUpTokens: got.FollowUpTokens}
	want.Off, want.Failed, want.SavedSeconds = 1, 2, 1
	want.Misses, want.Prefixes, want.FollowUpMisses = map[string]uint64{"a": 2}, map[string]uint64{"b": 1}, map[string]uint64{"a": 1, "b": 1}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	got.Misses["a"], got.TTFTHits.Counts[0] = 1<<40, 1<<40
	for n := range 1000 {
		observe(record.Reuse{Reason: fmt.Sprint("reason_", n), Continues: true, Prefix: n % 2}, 200, "", nil)
	}
	again := j.Totals()
	if len(again.Misses) > 300 || len(again.Prefixes) > 300 || len(again.FollowUpMisses) > 300 || again.FollowUpMisses["other"] == 0 {
		t.Errorf("%d and %d reasons are told apart", len(again.Misses), len(again.Prefixes))
	}
	if again.Misses["a"] != 2 || again.TTFTHits.Counts[0] != 0 {
		t.Error("a reader has changed the journal")
	}
}

// A reader sees whole records, in order, while turns end.
func TestJournal_IsReadWhileTurnsEnd(t *testing.T) {
	j := journal.New(journal.Config{Turns: 64})
	var turns, readers sync.WaitGroup
	done := make(chan struct{})
	for g := range 4 {
		turns.Go(func() {
			for n := range 3000 {
				j.Observe(turnOf(g*1_000_000 + n))
			}
		})
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				last := map[int]int{}
				for _, r := range j.Recent(64) {
					var id int
					if _, err := fmt.Sscanf(r.Turn, "turn-%d", &id); err != nil {
						t.Errorf("record of %q", r.Turn)
						return
					}
					if before, seen := last[id/1_000_000]; seen && before <= id {
						t.Errorf("turn %d comes behind %d", id, before)
						return
					}
					last[id/1_000_000] = id
				}
				j.Conversation("c1")
				j.Totals()
			}
		})
	}
	turns.Wait()
	close(done)
	readers.Wait()
	if got := j.Totals().Turns; got != 12_000 {
		t.Errorf("%d turns, want 12,000", got)
	}
}

// A reader that is stopped in the middle holds up no turn: it has no lock. Here it stops as it is told of the first record.
func TestJournal_ASlowReaderHoldsUpNoTurn(t *testing.T) {
	j := journal.New(journal.Config{Turns: 8})
	for n := range 8 {
		j.Observe(turnOf(n))
	}
	reading, read := make(chan struct{}), make(chan struct{})
	var picked []journal.TurnRecord
	go func() {
		defer close(read)
		picked = j.Pick(100, func(r *journal.TurnRecord) bool {
			if r.Turn == "turn-7" {
				close(reading)
				for n := range 100 { // 100 turns end meanwhile
					j.Observe(turnOf(100 + n))
				}
			}
			return true
		})
	}()
	<-reading
	<-read
	if len(picked) != 1 || picked[0].Turn != "turn-7" {
		t.Errorf("got %+v, want the one record that was there in time", picked)
	}
}

// The memory of a full journal, with names as long as they may be.
func TestJournal_IsBounded(t *testing.T) {
	long := func(n, length int) string { return fmt.Sprintf("%0*d", length, n) }
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	j := journal.New(journal.Config{})
	for n := range 10_000 {
		r := turnOf(n)
		r.Turn, r.Model, r.Source, r.Reuse.Differs = long(n, 128), long(n, 256), "header:X-Id", "messages[512]"
		r.Answer.PromptTokens, r.Answer.CompletionTokens, r.Reuse.Hit, r.Reuse.Cached = n, n, true, n
		r.Trace = record.Trace{Context: traceOf(1)}
		r.Legs = []*record.Leg{{Role: upstream.RolePrefill, Instance: long(n, 256)}, {Role: upstream.RoleDecode, Instance: long(n, 256)}}
		j.Observe(r)
	}
	if took := heap() - before; took > 10<<20 {
		t.Errorf("a full journal takes %d KiB, want at most 10 MiB", took>>10)
	}
	runtime.KeepAlive(j)
}

// A record has what an operator needs of a failed turn, and its JSON nothing that is not in it.
func TestTurnRecord_NamesTheFailedLeg(t *testing.T) {
	j := journal.New(journal.Config{})
	r := turnOf(1)
	r.Status, r.Code = 504, "prefill_timeout"
	r.Reuse = record.Reuse{Reason: record.ReasonRewritten, Differs: "messages[3]", Cached: -1}
	r.Err = fmt.Errorf("turn: %w", &upstream.LegError{Role: upstream.RolePrefill, Instance: "p-1", Kind: upstream.Timeout, Err: errors.New("SECRET")})
	r.Model, r.Unserved = "SECRET", true
	r.Trace = record.Trace{Context: traceOf(0xab, 0x0c)}
	j.Observe(r)
	got := j.Recent(1)[0]
	if want := "ab0c" + strings.Repeat("0", 28); got.Trace != want {
		t.Errorf("the trace is %q, want %q", got.Trace, want)
	}
	if got.Model != "other" {
		t.Errorf("a model that no engine serves is shown as %q", got.Model)
	}
	if got.Blame != "p-1" || got.Kind != "timeout" || got.Outcome != record.Miss || got.Reason != "history_rewritten" || got.Differs != "messages[3]" {
		t.Errorf("got %+v", got)
	}
	body, err := json.Marshal(got)
	if err != nil || strings.Contains(string(body), "SECRET") || strings.Contains(string(body), "tokens_confirmed") {
		t.Errorf("%s, %v", body, err)
	}
}

func TestJournal_FindsConversationsByTheClientsID(t *testing.T) {
	j := journal.New(journal.Config{})
	turn := func(id byte, conversation, model string) {
		j.Observe(&record.Turn{Asked: record.Asked{Conversation: conversation, Model: model, ID: [8]byte{id}}})
	}
	turn(1, "aaa", "m")
	turn(1, "bbb", "n") // the same id of another model
	turn(2, "ccc", "m")
	turn(1, "aaa", "m")
	turn(0, "ddd", "m") // without an id
	turn(1, "", "m")
	shown := func(id byte) string {
		var all []string
		for _, n := range j.Named([8]byte{id}) {
			all = append(all, fmt.Sprintf("%s %s %d", n.Conversation, n.Model, n.Turns))
		}
		return strings.Join(all, ", ")
	}
	if got, want := shown(1), "aaa m 2, bbb n 1"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
	if got := shown(0) + shown(3); got != "" {
		t.Errorf("no id, and one that nobody sent, are found: %q", got)
	}
	for i := range 1000 {
		turn(4, fmt.Sprint(i), "m")
	}
	if got := j.Named([8]byte{4}); len(got) != 100 || got[0].Conversation != "999" {
		t.Errorf("%d conversations of one id, want the newest 100", len(got))
	}
	if text, err := json.Marshal(j.Recent(1)); err != nil || strings.Contains(strings.ToLower(string(text)), `"id"`) {
		t.Errorf("the hash is shown: %s, %v", text, err)
	}
}

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
