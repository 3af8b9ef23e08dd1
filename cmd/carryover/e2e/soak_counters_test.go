package e2e

import (
	"net/http"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/server/record"
)

// seenTurns is what clients have seen of turns.
type seenTurns struct{ turns, hits, offered, failed, stored, computed, legs int }

// sees counts an answer.
func (s *soak) sees(a *answered, rec *record.Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.turns++
	if n := offeredBy(a); n > 0 {
		s.seen.hits++
		s.seen.offered += n
	}
	if a.status != http.StatusOK {
		s.seen.failed++
	}
	if rec.Stored == "yes" {
		s.seen.stored++
	}
	s.seen.computed += rec.Answer.PromptTokens - rec.Answer.CachedTokens
	s.seen.legs += len(rec.Legs)
}

// verifyCounters asserts that the metrics count what clients have seen, each turn and each ticket once. The program still runs.
func (s *soak) verifyCounters(t *testing.T) {
	t.Helper()
	var m scraped
	var sent, released float64
	if !testrig.Eventually(func() bool { // a release may be on its way to decode
		m = scrape(t, s.metrics())
		sent = m.sum("carryover_releases_total") - m.sum("carryover_releases_total", `result="requeued"`)
		s.uses.mu.Lock()
		released = float64(s.uses.released)
		s.uses.mu.Unlock()
		return s.sum("")["running"] == 0 && sent == released && s.toldPinned(t)
	}) {
		told, held := s.pinned(t)
		t.Errorf("pinned tokens: got %d, want %d", told, held)
	}
	operations := func(with ...string) float64 {
		return m.sum("carryover_store_operation_duration_seconds_count", with...)
	}
	for what, pair := range map[string][2]float64{
		"turns, and all outcomes":    {float64(s.seen.turns), m.sum("carryover_turns_total")},
		"turns, and HTTP requests":   {float64(s.seen.turns), m.sum("http_server_request_duration_seconds_count")},
		"hits, and outcomes":         {float64(s.seen.hits), m.sum("carryover_turns_total", `outcome="hit"`)},
		"tokens offered":             {float64(s.seen.offered), m.sum("carryover_reuse_tokens_offered_total")},
		"answers, and their times":   {float64(s.seen.turns - s.seen.failed), m.sum("carryover_turn_ttft_seconds_count") + m.sum("carryover_turn_answer_seconds_count")},
		"tickets, and puts":          {m.sum("carryover_tickets_total", `result="yes"`), operations(`operation="put"`, `outcome="stored"`)},
		"releases, and their legs":   {released, sent},
		"turns open, and that wait":  {0, m.sum("carryover_open_turns") + m.sum("carryover_queue_length")},
		"tickets that were not lost": {operations(`operation="put"`, `outcome="stored"`), operations(`operation="take"`, `outcome="taken"`) + m.sum("carryover_store_displaced_tickets_total") + m.sum("carryover_tickets_held")},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %v and %v, want the same", what, pair[0], pair[1])
		}
	}
	if s.seen.turns == 0 || s.seen.hits == 0 {
		t.Errorf("%+v: nothing was shown", s.seen)
	}
}
