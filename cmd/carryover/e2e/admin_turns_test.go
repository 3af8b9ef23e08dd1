package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/server/journal"
)

// ofConversation is what operators see of one.
type ofConversation struct {
	Conversation string
	Turns        []journal.TurnRecord
	Tickets      []struct {
		Instance string
		Tokens   int
		Deadline time.Time
	}
}

// An operator follows a conversation by its hash, and sees turns, outcomes and the ticket that is out, and nothing that was said.
func TestOperators_SeeAConversationAndNothingOfItsContent(t *testing.T) {
	o := startRig(t, rigConfig{admin: true})
	ids := o.talkOfSecrets(t)
	for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/readyz": `"status":"ready"`, "/health": `"cached_conversations":`} { // without a token
		if status, body := o.operate(t, http.MethodGet, path, nil); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
	var last struct{ Turns []journal.TurnRecord }
	var all []string
	settled := testrig.Eventually(func() bool { // the last turn's receipt comes behind its last byte
		_, text := o.operate(t, http.MethodGet, "/admin/turns?limit=50", nil)
		all = []string{text}
		return json.Unmarshal([]byte(text), &last) == nil && len(last.Turns) == 12
	})
	if !settled {
		t.Fatalf("%d turns are told, want 12", len(last.Turns))
	}
	seen := map[string]bool{}
	for _, turn := range last.Turns {
		if seen[turn.Conversation] {
			continue
		}
		seen[turn.Conversation] = true
		var c ofConversation
		status, text := o.operate(t, http.MethodGet, "/admin/conversations/"+turn.Conversation, nil)
		all = append(all, text)
		if err := json.Unmarshal([]byte(text), &c); err != nil || status != http.StatusOK || c.Conversation != turn.Conversation || len(c.Turns) != 6 || len(c.Tickets) != 1 {
			t.Errorf("%d: %d turns, %d tickets: %s", status, len(c.Turns), len(c.Tickets), text)
			continue
		}
		if first := c.Turns[5]; first.Reason != "first_turn" || first.Began.After(c.Turns[0].Began) {
			t.Errorf("the oldest turn is told as %+v", first)
		}
		if ticket := c.Tickets[0]; ticket.Tokens < c.Turns[0].Offered || time.Until(ticket.Deadline) <= 0 {
			t.Errorf("the ticket that is out: %+v", ticket)
		}
	}
	if len(seen) != 2 {
		t.Errorf("%d conversations, want 2", len(seen))
	}
	if status, text := o.operate(t, http.MethodGet, "/admin/conversations/000000000000", nil); status != http.StatusNotFound || !strings.Contains(text, "conversation_not_found") {
		t.Errorf("an unknown conversation: %d %s", status, text)
	}
	for _, text := range all {
		wantHidden(t, "the listener for operators", text, ids, canaryPrompt, canaryID, canaryKey, canaryTenant)
	}
}
