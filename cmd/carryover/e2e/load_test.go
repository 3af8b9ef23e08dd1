package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// streamed holds a conversation of streamed turns, each in front of one program or another. Each answer must be what the model says, and look
// is shown it and says whether another turn follows.
func streamed(ctx context.Context, id string, front func(turn int) *rig, look func(turn int, a *answered) (goOn bool, err error)) error {
	var said speech
	for turn, goOn := 1, true; goOn; turn++ {
		answer := fmt.Sprintf("Answer %d of %s is what the clerk remembers of it.", turn, id)
		said = append(said, question(fmt.Sprintf("%s %d %s SAY %s", id, turn, longText(turn), answer)))
		body := encode(object{"model": "sim", "messages": said, "stream": true, "max_tokens": 400, "conversation_id": id})
		a, err := front(turn).post(ctx, "/v1/chat/completions", nil, body, unwatched)
		if err == nil && (a.status != http.StatusOK || a.ends != endsDone || a.content != answer) {
			err = fmt.Errorf("status %d, answer ends %s: %.300s", a.status, a.ends, a.raw)
		}
		if err == nil {
			goOn, err = look(turn, a)
		}
		if err != nil {
			return fmt.Errorf("%s, turn %d: %w", id, turn, err)
		}
		if said = append(said, a.assistant()); len(said) > 16 {
			said = nil
		}
	}
	return nil
}

// A keep-alive connection that an instance closes while a leg is written to it costs
// the turn its ticket. Nothing else may cost one, and it takes a machine that is
// seconds behind.
const brokenConnections = 9

func TestTwoHundredConversations(t *testing.T) {
	t.Parallel()
	// No answer of the crowd waits for memory.
	c := startRig(t, rigConfig{cfg: engineWith(`{"blocks":131072}`), prefills: 2, decodes: 2, taught: true, flags: inTurn})
	// Every pair of instances has its trial. Both roles are picked in turn, so a conversation offers the tickets of each decode instance to the other
	// number of prefill; several choices go to decode alone, which moves its turn on by one.
	const turns = 5
	front := func(int) *rig { return c }
	every := func(turn int, _ *answered) (bool, error) { return turn < turns, nil }
	for _, id := range []string{"warm-1", "warm-2"} {
		noError(t, streamed(t.Context(), id, front, every))
		c.must(t, "/v1/chat/completions", nil, object{"model": "sim", "n": 2, "max_tokens": 1, "messages": speech{question("Two, please.")}})
	}
	var broken atomic.Int32
	look := func(turn int, a *answered) (bool, error) {
		switch reuse := noHit(a.reuse()); {
		case turn == 1 && reuse == "miss;reason=first_turn", turn > 1 && strings.HasPrefix(reuse, "hit;"):
		case reuse == "miss;reason=retried_without_ticket":
			broken.Add(1)
		default:
			return false, fmt.Errorf("X-KV-Reuse %q", reuse)
		}
		return turn < turns, nil
	}
	severally(t, -1, 200, func(ctx context.Context, i int) error { return streamed(ctx, fmt.Sprint("crowd-", i), front, look) })
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

// These tests act at moments that the steps of a scenario file cannot name.

// chat sends one chat turn. It may be called from any goroutine.
func (r *rig) chat(ctx context.Context, conversation string, stream bool, h *history, watch func(int, []byte)) (*answered, error) {
	body := encode(object{
		"model": "sim", "messages": h.messages, "stream": stream, "max_tokens": 60_000, "conversation_id": conversation,
	})
	return r.post(ctx, "/v1/chat/completions", nil, body, watch)
}

func unwatched(int, []byte) {}

func TestStream_EventReachesClientBeforeTheNext(t *testing.T) {
	// Ten tokens of 200 ms are more than a busy machine stands still for.
	r := startRig(t, rigConfig{taught: true, cfg: engineWith(`{"timing":{"inter_token":200000000}}`)})
	h := &history{}
	h.askChat("auto", "", 1)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	_, err := r.chat(ctx, "a", true, h, func(event int, _ []byte) {
		// An event is 200 bytes long: a buffer of 4 KiB would be 20 tokens behind.
		if ahead := r.atDecode("generated_tokens") - event; ahead > 10 {
			t.Errorf("event %d reaches the client %d tokens late", event, ahead)
		}
		if event == 5 {
			leave()
		}
	})
	noError(t, err)
	r.verify(t, pins{})
}
