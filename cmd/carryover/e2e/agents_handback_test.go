package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"carryover/upstream/vllmsim"
)

// Answers to agents are handed back as those to chats are, and next turns find them in prefill's prefix cache, with a session's id and
// without: every answer is that of a lone engine, and no KV is read wrongly.
func TestAgents_HandedBack(t *testing.T) {
	s := newSoak(t, func(c *vllmsim.Config) {
		c.Render, c.OutputTokenIDs, c.MessageParams, c.PromptTokensDetails = true, true, true, true
	}, 790)
	s.stop() // in place of which there is one that hands back
	s.rig = startAgents(t, func(c *vllmsim.Config) { *c = s.cfg }, "--hand-back", "now", "--release", "on")
	s.pins = nil
	var found atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(soakAtOne)
	for i := range 24 {
		group.Go(func() error { return s.handedBackAgent(ctx, newAgentTalk(s.seed, i), i%4 > 1, &found) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	s.stop()
	total := s.sum(t, "")
	for _, name := range wrongReads() {
		if total[name] != 0 {
			t.Errorf("%s: got %d, want 0", name, total[name])
		}
	}
	if total["hand_backs"] == 0 || found.Load() == 0 {
		t.Errorf("%d hand-backs, %d turns found what was handed back", total["hand_backs"], found.Load())
	}
}

// handedBackAgent holds one conversation, nameless or not.
func (s *soak) handedBackAgent(ctx context.Context, k *agentTalk, nameless bool, found *atomic.Int64) error {
	for turn := 1; turn <= soakTurns; turn++ {
		header, body := k.next(turn)
		if nameless {
			header = http.Header{}
			delete(body, "metadata")
			delete(body, "prompt_cache_key")
		}
		header.Set("X-Request-Id", fmt.Sprintf("back-%s-%d", k.id, turn))
		right, _, _, err := s.rightForAgent(ctx, k, body)
		if err != nil {
			return err
		}
		a, record, err := s.agentTurn(ctx, k, header, body)
		if err != nil {
			return err
		}
		if err := sameSaid(a, right); err != nil {
			return fmt.Errorf("turn %d of %s (%s): %w", turn, k.path, a.reuse(), err)
		}
		if strings.Contains(a.reuse(), "proof=engine") || nameless && turn > 1 && record.Reuse.Cached > 0 {
			found.Add(1)
		}
		k.heard(a)
	}
	return nil
}
