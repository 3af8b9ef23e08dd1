package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/continuation"
	"carryover/upstream/body"
)

// learning keeps tickets as long as what was learnt says.
func learning(c *server.Config) {
	handingBack(c)
	c.HandBackAuto = true
}

// endsUntold is an engine that ends its streams without a finish_reason.
func endsUntold(w http.ResponseWriter, _ *http.Request, l leg) {
	say(w, append(firstEvents(3)(l), "[DONE]")...)
}

// What is never continued is released at once, and is never in the store; what is continued within seconds waits for its turn.
func TestLearnt_DecidesWhatIsKept(t *testing.T) {
	for name, row := range map[string]struct {
		continued         time.Duration // after how long answers of the kind were, 0 for never
		stored, keep      string
		tickets, releases int
	}{
		"one-shot":   {0, "released", "release", 0, 1},
		"tool loops": {10 * time.Millisecond, "yes", "ticket", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: learning})
			r.inIDs(nil)
			r.server.Learn(100, continuation.Kind{API: body.Text, Explicit: true}, row.continued)
			r.wantOK(r.sendIDs("c", false, count(1, 40)...), "miss;reason=first_turn")
			r.wantStored(1, row.stored)
			if _, values := r.line(); values["keep"] != row.keep {
				t.Errorf("keep %v, want %s", values["keep"], row.keep)
			}
			if kept, due := r.server.Counts().Tickets, r.server.Unused(); kept != row.tickets || r.store.Len() != row.tickets || due != row.releases {
				t.Errorf("%d tickets are kept, %d conversations in the store, %d wait for their release, want %d, %d and %d", kept, r.store.Len(), due, row.tickets, row.tickets, row.releases)
			}
		})
	}
}

// A conversation that goes on is learnt from its turns, also while everything is released at once.
func TestLearnt_FromTurnsWithoutTickets(t *testing.T) {
	r := newRig(t, setup{cfg: learning})
	r.inIDs(nil)
	kind, before, turns := continuation.Kind{API: body.Text, Explicit: true}, 100, 8
	r.server.Learn(before, kind, 0)
	prompt := count(1, 40)
	for range turns {
		r.sendIDs("c", false, prompt...)
		prompt = continued(prompt)
	}
	if got := r.server.Curve(kind).Known; got != before+turns-1 {
		t.Errorf("%d answers are known, want %d", got, before+turns-1)
	}
	if r.log.count(`"stored":"released"`) == 0 {
		t.Error("nothing was released")
	}
}

// An engine that ends its streams without a finish_reason does not say whether they end with calls. They teach nothing of requests with tools.
// A request without tools ends without calls.
func TestLearnt_NothingFromEndsThatAreNotTold(t *testing.T) {
	for tools, known := range map[string]int{`"tools":[{"type":"function","function":{"name":"f"}}],`: 0, "": 3} {
		r := newRig(t, setup{cfg: func(c *server.Config) { learning(c); byTokens(c); disagg(10_000)(c) }})
		r.decode[0].always(endsUntold)
		for range 4 {
			r.wantOK(r.send(strings.Replace(ask("c", true, "go"), "{", "{"+tools, 1)), "miss;reason=bypass")
		}
		kind := continuation.Kind{API: body.Chat, Explicit: true, Tools: tools != ""}
		if got := r.server.Curve(kind).Known; got != known {
			t.Errorf("%s: %d answers without calls are known, want %d", tools, got, known)
		}
		if kind.Unread = tools != ""; r.server.Curve(kind).Known != 3 {
			t.Errorf("%s: the continuations went unseen", tools)
		}
	}
}

// Long text completions of one conversation have mostly equal keys by content, and so have those of one template.
func TestLearnt_TextsByTheirPrompts(t *testing.T) {
	byContent := func(c *server.Config) { learning(c); byTokens(c); c.ByContent = true }
	template := count(1, 400)
	for name, row := range map[string]struct {
		next  func(prompt []int, turn int) []int
		known int
	}{
		"continued": {func(prompt []int, _ int) []int { return continued(prompt) }, 7},
		"templated": {func(_ []int, turn int) []int { return slices.Concat(template, count(1000+turn, 1+turn*7%5)) }, 0},
	} {
		r := newRig(t, setup{cfg: byContent})
		r.inIDs(nil)
		prompt := row.next(template, 0)
		for turn := range 8 {
			if p := r.sendIDs("", false, prompt...); p.status != http.StatusOK {
				t.Fatalf("status %d", p.status)
			}
			prompt = row.next(prompt, turn+1)
		}
		if got := r.server.Curve(continuation.Kind{API: body.Text}).Known; got != row.known {
			t.Errorf("%s: %d answers are known to be continued, want %d", name, got, row.known)
		}
	}
}
