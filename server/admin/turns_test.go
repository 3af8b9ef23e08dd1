package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"carryover/server/admin"
	"carryover/server/journal"
	"carryover/server/record"
)

// kept is what GET /admin/turns and /admin/conversations answer.
type kept struct {
	Conversation string
	Turns        []journal.TurnRecord
	Tickets      []admin.Ticket
}

func TestTurns_AreToldNewestFirst(t *testing.T) {
	deps, _ := newDeps(t)
	deps.Journal = journal.New(journal.Config{})
	deps.Tickets = func(conversation string) []admin.Ticket {
		if conversation == "aaaaaaaaaaaa" {
			return []admin.Ticket{{Instance: "d-0", Tokens: 512, Deadline: time.Unix(1_800_000_000, 0).UTC()}}
		}
		return nil
	}
	h := admin.New(deps)
	for n := range 150 {
		deps.Journal.Observe(&record.Turn{Turn: fmt.Sprint(n), Asked: record.Asked{Conversation: []string{"aaaaaaaaaaaa", "bbbbbbbbbbbb"}[n%2]}})
	}
	ask := func(path string, want int) (got kept) {
		t.Helper()
		status, body := ask(t, h, "GET", path, "", nil)
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != want {
			t.Fatalf("%s: %d %s", path, status, body)
		}
		return got
	}
	if got := ask("/admin/turns", 200).Turns; len(got) != 100 || got[0].Turn != "149" {
		t.Errorf("got %d turns from %s on", len(got), got[0].Turn)
	}
	if got := ask("/admin/turns?limit=3", 200).Turns; len(got) != 3 || got[2].Turn != "147" {
		t.Errorf("got %+v", got)
	}
	if got := ask("/admin/turns?limit=100000", 200).Turns; len(got) != 150 {
		t.Errorf("got %d turns", len(got))
	}
	got := ask("/admin/conversations/aaaaaaaaaaaa", 200)
	if got.Conversation != "aaaaaaaaaaaa" || len(got.Turns) != 75 || got.Turns[0].Turn != "148" || len(got.Tickets) != 1 || got.Tickets[0].Tokens != 512 {
		t.Errorf("got %s with %d turns, tickets %+v", got.Conversation, len(got.Turns), got.Tickets)
	}
	if got := ask("/admin/conversations/bbbbbbbbbbbb", 200); len(got.Turns) != 75 || got.Tickets == nil && len(got.Tickets) != 0 {
		t.Errorf("got %d turns, tickets %+v", len(got.Turns), got.Tickets)
	}
	for path, status := range map[string]int{
		"/admin/conversations/aaaa": 404, "/admin/conversations/AAAAAAAAAAAA": 404, "/admin/conversations/": 404,
		"/admin/turns?limit=0": 400, "/admin/turns?limit=x": 400, "/admin/turns?limit=-5": 400,
	} {
		if got, body := get(t, h, path); got != status {
			t.Errorf("%s: %d %s, want %d", path, got, body, status)
		}
	}
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	return ask(t, h, "GET", path, "", nil)
}

func TestTurns_NeedAJournal(t *testing.T) {
	deps, _ := newDeps(t)
	for _, path := range []string{"/admin/turns", "/admin/conversations/x"} {
		if status, _ := ask(t, admin.New(deps), "GET", path, "", nil); status != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, status)
		}
	}
}
