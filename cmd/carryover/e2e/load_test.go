package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"carryover/upstream/vllmsim"
)

// crowdTurns is how many turns each conversation of the crowd has.
const crowdTurns = 5

// crowded holds a conversation of streamed turns and shows each answer to look.
func (r *rig) crowded(ctx context.Context, id string, look func(turn int, a *answered) error) error {
	var said speech
	for turn := 1; turn <= crowdTurns; turn++ {
		asks := fmt.Sprintf("%s asks for the %d. time what the clerk remembers.", id, turn)
		if turn == 1 {
			asks += " " + longText(1)
		}
		said = append(said, question(asks))
		body := encode(object{"model": "sim", "messages": said, "stream": true, "max_tokens": 20, "conversation_id": id})
		a, err := r.post(ctx, "/v1/chat/completions", nil, body, unwatched)
		if err == nil && (a.status != http.StatusOK || a.ends != endsDone) {
			err = fmt.Errorf("status %d, answer ends %s: %.300s", a.status, a.ends, a.raw)
		}
		if err == nil {
			err = look(turn, a)
		}
		if err != nil {
			return fmt.Errorf("%s, turn %d: %w", id, turn, err)
		}
		said = append(said, a.assistant())
	}
	return nil
}

// A keep-alive connection that an instance closes while a leg is written to it costs
// the turn its ticket. Nothing else may cost one, and it takes a machine that is
// seconds behind.
const brokenConnections = 9

func TestTwoHundredConversations(t *testing.T) {
	t.Parallel()
	cfg := vllmsim.DefaultConfig()
	cfg.Blocks = 1 << 17 // no answer of the crowd waits for memory
	c := startRig(t, rigConfig{cfg: cfg, prefills: 2, decodes: 2, taught: true, flags: inTurn})
	// Every pair of instances has its trial. Both roles are picked in turn, so a conversation offers the tickets of each decode instance to the other
	// number of prefill; several choices go to decode alone, which moves its turn on by one.
	every := func(int, *answered) error { return nil }
	for _, id := range []string{"warm-1", "warm-2"} {
		noError(t, c.crowded(t.Context(), id, every))
		c.must(t, "/v1/chat/completions", nil, object{"model": "sim", "n": 2, "max_tokens": 1, "messages": speech{question("Two, please.")}})
	}
	var broken atomic.Int32
	look := func(turn int, a *answered) error {
		switch reuse := noHit(a.reuse()); {
		case turn == 1 && reuse == "miss;reason=first_turn", turn > 1 && strings.HasPrefix(reuse, "hit;"):
		case reuse == "miss;reason=retried_without_ticket":
			broken.Add(1)
		default:
			return fmt.Errorf("X-KV-Reuse %q", reuse)
		}
		return nil
	}
	severally(t, -1, 200, func(ctx context.Context, i int) error { return c.crowded(ctx, fmt.Sprint("crowd-", i), look) })
	if got := c.atPrefill("external_tokens"); got == 0 {
		t.Error("prefill read no token of decode's")
	}
	if n := broken.Load(); n > 0 {
		t.Logf("%d turns lost a connection and with it their ticket", n)
		c.stop()
		if n > brokenConnections || c.wrong() > 0 {
			t.Errorf("turns without their ticket: got %d, want at most %d; wrong reads: got %d, want 0", n, brokenConnections, c.wrong())
		}
		return
	}
	c.verify(t, pins{})
}
