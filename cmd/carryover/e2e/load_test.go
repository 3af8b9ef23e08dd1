package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/upstream/vllmsim"
)

// crowd is many conversations through one program.
type crowd struct {
	*rig
	turns     int
	maxTokens int
	runs      int // so far
}

func startCrowd(t *testing.T, sampling string, turns int, replace func(*server.Deps)) *crowd {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Sampling = sampling
	cfg.Blocks = 1 << 17 // no answer of the crowd waits for memory
	c := &crowd{turns: turns, maxTokens: 20, rig: startRig(t, rigConfig{
		cfg: cfg, prefills: 2, decodes: 2, replace: replace,
		taught: true, flags: []string{
			"--routing-prefill", "round_robin", "--routing-decode", "round_robin",
		},
	})}
	return c
}

// warm lets every pair of instances have its trial. Both roles are picked in turn, so a
// conversation offers the tickets of each decode instance to the other number of
// prefill; several choices go to decode alone, which moves its turn on by one.
func (c *crowd) warm(t *testing.T) {
	t.Helper()
	every := func(int, *answered) error { return nil }
	if err := c.converse(t.Context(), "warm-1", every); err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"model":"sim","n":2,"max_tokens":1,"messages":[{"role":"user","content":"Two, please."}]}`)
	if a, err := c.post(t.Context(), "/v1/chat/completions", http.Header{"X-Request-Id": {"shift"}}, body, nil); err != nil || a.status != http.StatusOK {
		t.Fatalf("several choices: %+v, %v", a, err)
	}
	if err := c.converse(t.Context(), "warm-2", every); err != nil {
		t.Fatal(err)
	}
}

// converse holds a conversation of streamed turns and shows each answer to look.
func (c *crowd) converse(ctx context.Context, id string, look func(turn int, a *answered) error) error {
	var messages speech
	for turn := 1; turn <= c.turns; turn++ {
		question := fmt.Sprintf("%s asks for the %d. time what the clerk remembers.", id, turn)
		if turn == 1 {
			question += " " + longText(1)
		}
		messages = append(messages, encode(map[string]string{"role": "user", "content": question}))
		body := encode(object{
			"model": "sim", "messages": messages, "stream": true, "max_tokens": c.maxTokens, "conversation_id": id,
		})
		name := id + "-" + strconv.Itoa(turn)
		a, err := c.post(ctx, "/v1/chat/completions", http.Header{"X-Request-Id": {name}}, body, func(int, []byte) {})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if a.status != http.StatusOK || a.ends != endsDone {
			return fmt.Errorf("%s: status %d, answer ends %s: %.300s", name, a.status, a.ends, a.raw)
		}
		if err := look(turn, a); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		messages = append(messages, a.assistant())
	}
	return nil
}

// run holds so many conversations at once.
func (c *crowd) run(t *testing.T, conversations int, look func(turn int, a *answered) error) {
	t.Helper()
	c.runs++
	group, ctx := errgroup.WithContext(t.Context())
	for i := range conversations {
		group.Go(func() error { return c.converse(ctx, fmt.Sprintf("crowd-%d-%d", c.runs, i), look) })
	}
	if err := group.Wait(); err != nil {
		t.Fatalf("%v\nprefill: %v\ndecode: %v", err, c.sum(config.RolePrefill), c.sum(config.RoleDecode))
	}
}

// A keep-alive connection that an instance closes while a leg is written to it costs
// the turn its ticket. Nothing else may cost one, and it takes a machine that is
// seconds behind.
const brokenConnections = 9

func TestTwoHundredConversations(t *testing.T) {
	t.Parallel()
	c := startCrowd(t, vllmsim.SamplingCanonical, 5, nil)
	c.warm(t)
	var broken atomic.Int32
	c.run(t, 200, func(turn int, a *answered) error {
		switch reuse := noHit(a.reuse()); {
		case turn == 1 && reuse == "miss;reason=first_turn", turn > 1 && strings.HasPrefix(reuse, "hit;"):
		case reuse == "miss;reason=retried_without_ticket":
			broken.Add(1)
		default:
			return fmt.Errorf("X-KV-Reuse %q", reuse)
		}
		return nil
	})
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
