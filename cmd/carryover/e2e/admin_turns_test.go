package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/server/journal"
	"carryover/upstream/vllmsim"
)

// watchedRig is the whole program with its listener for operators.
type watchedRig struct {
	*rig
	admin string // its address
}

func startWatched(t *testing.T, cfg vllmsim.Config, flags ...string) *watchedRig {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	turns := journal.New(journal.Config{})
	o := &watchedRig{admin: "http://" + listener.Addr().String()}
	o.rig = startRig(t, rigConfig{
		prefill: []vllmsim.Config{cfg}, decode: []vllmsim.Config{cfg}, flags: flags,
		replace: func(deps *server.Deps) { deps.Observers = append(deps.Observers, turns.Observe) },
		wire: func(_ config.Config, p *app.Proxy) {
			p.Journal = turns
			p.Alongside = append(p.Alongside, func(ctx context.Context) error {
				return p.ServeAdmin(ctx, listener, "", nil, slog.New(slog.DiscardHandler))
			})
		},
	})
	return o
}

// operator sends a request to the listener for operators, with a body or without.
func (o *watchedRig) operator(t *testing.T, path string, body []byte, into any) (status int, text string) {
	t.Helper()
	method, reader := http.MethodGet, io.Reader(nil)
	if body != nil {
		method, reader = http.MethodPost, bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, o.admin+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := o.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatalf("%s: %s: %v", path, raw, err)
		}
	}
	return resp.StatusCode, string(raw)
}

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
	cfg := vllmsim.DefaultConfig()
	o := startWatched(t, cfg)
	o.talkOfSecrets(t, cfg)
	var last struct{ Turns []journal.TurnRecord }
	var all []string
	settled := testrig.Eventually(func() bool { // the last turn's receipt comes behind its last byte
		status, text := o.operator(t, "/admin/turns?limit=50", nil, &last)
		all = []string{text}
		return status == http.StatusOK && len(last.Turns) == 12
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
		status, text := o.operator(t, "/admin/conversations/"+turn.Conversation, nil, &c)
		all = append(all, text)
		if status != http.StatusOK || c.Conversation != turn.Conversation || len(c.Turns) != 6 || len(c.Tickets) != 1 {
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
	if status, text := o.operator(t, "/admin/conversations/000000000000", nil, nil); status != http.StatusNotFound || !strings.Contains(text, "conversation_not_found") {
		t.Errorf("an unknown conversation: %d %s", status, text)
	}
	for _, text := range all {
		for _, secret := range []string{canaryPrompt, canaryID, canaryKey, canaryTenant} {
			if strings.Contains(text, secret) {
				t.Errorf("operators are shown %q in %.500s", secret, text)
			}
		}
	}
}
