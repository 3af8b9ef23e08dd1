package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/server/admin"
	"carryover/server/journal"
	"carryover/server/record"
	"carryover/upstream"
)

// kept is what GET /admin/turns and /admin/conversations answer.
type kept struct {
	Conversation string
	Turns        []journal.TurnRecord
	Tickets      []admin.Ticket
}

// wantKept asks for turns.
func wantKept(t *testing.T, h http.Handler, path string) (got kept) {
	t.Helper()
	status, body := get(t, h, path)
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("%s: %d %s", path, status, body)
	}
	return got
}

func TestTurns_AreToldNewestFirst(t *testing.T) {
	deps, _ := newDeps(t)
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
	if got := wantKept(t, h, "/admin/turns").Turns; len(got) != 100 || got[0].Turn != "149" {
		t.Errorf("got %d turns from %s on", len(got), got[0].Turn)
	}
	if got := wantKept(t, h, "/admin/turns?limit=3").Turns; len(got) != 3 || got[2].Turn != "147" {
		t.Errorf("got %+v", got)
	}
	if got := wantKept(t, h, "/admin/turns?limit=100000").Turns; len(got) != 150 {
		t.Errorf("got %d turns", len(got))
	}
	got := wantKept(t, h, "/admin/conversations/aaaaaaaaaaaa")
	if got.Conversation != "aaaaaaaaaaaa" || len(got.Turns) != 75 || got.Turns[0].Turn != "148" || len(got.Tickets) != 1 || got.Tickets[0].Tokens != 512 {
		t.Errorf("got %s with %d turns, tickets %+v", got.Conversation, len(got.Turns), got.Tickets)
	}
	if got := wantKept(t, h, "/admin/conversations/bbbbbbbbbbbb"); len(got.Turns) != 75 || got.Tickets == nil && len(got.Tickets) != 0 {
		t.Errorf("got %d turns, tickets %+v", len(got.Turns), got.Tickets)
	}
	for path, status := range map[string]int{
		"/admin/conversations/aaaa": 404, "/admin/conversations/AAAAAAAAAAAA": 404, "/admin/conversations/": 404,
		"/admin/turns?failed=yes": 400, "/admin/turns?status=50x": 400, "/admin/turns?status=5": 400, "/admin/turns?status=xxx": 400,
		"/admin/turns?instance=": 400, "/admin/turns?instance=none": 400, "/admin/turns?since=yesterday": 400, "/admin/turns?state=502": 400,
		"/admin/turns?limit=0": 400, "/admin/turns?limit=x": 400, "/admin/turns?limit=-5": 400,
	} {
		want(t, status, "", h, "GET", path, "")
	}
}

// Each parameter leaves the turns that it wants, and several leave those that all want.
func TestTurns_AreFiltered(t *testing.T) {
	deps, _ := newDeps(t)
	idle, err := upstream.NewInstance(upstream.RolePrefill, "p-0", "http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	deps.Fleet.Set([]upstream.Instance{idle})
	h := admin.New(deps)
	now := time.Now()
	for id, turn := range map[string]struct {
		status int
		kind   upstream.Kind
		ago    time.Duration
	}{"well": {200, 0, time.Hour}, "refused": {503, 0, 20 * time.Minute}, "broken": {200, upstream.Broken, 870 * time.Second}, "blamed": {502, upstream.Broken, 870 * time.Second}} {
		r := &record.Turn{Turn: id, Began: now.Add(-turn.ago - time.Minute), Took: time.Minute, Status: turn.status}
		if turn.kind != 0 {
			r.Err = &upstream.LegError{Role: upstream.RoleDecode, Instance: "d-gone", Kind: turn.kind}
		}
		deps.Journal.Observe(r)
	}
	for query, want := range map[string]string{
		"failed=true": "blamed broken refused", "failed=false": "well", "status=5xx": "blamed refused", "status=502": "blamed", "instance=d-gone": "blamed broken",
		"since=15m": "blamed broken", "until=15m": "refused well", "since=" + now.Add(-30*time.Minute).UTC().Format(time.RFC3339) + "&until=19m": "refused",
		"failed=true&status=2xx": "broken", "status=502&status=503": "", "instance=p-0": "",
	} {
		names := []string{}
		for _, turn := range wantKept(t, h, "/admin/turns?"+query).Turns {
			names = append(names, turn.Turn)
		}
		if slices.Sort(names); strings.Join(names, " ") != want {
			t.Errorf("%s: %v, want %s", query, names, want)
		}
	}
}
