package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/server"
)

// byContent are the flags of a program that finds the conversations of turns without an id.
var byContent = []string{"--conversation-by-content", "on"}

// Conversations of each deployment within go test. With CARRYOVER_SOAK the replicas have as many as it says, and the other deployments a
// quarter of that.
const (
	unnamedShort = 60 // so many that a turn which misses by chance leaves the shares above their floors
	unnamedShare = 4
)

// unnamedSoaks are the deployments of conversations without ids, and what their engines and flags are.
func unnamedSoaks() []unnamedSoak {
	return []unnamedSoak{
		{name: "replicas", replicas: 3, share: 1, hits: floors{95, 70}, engines: `{}`},
		{name: "reasoning stripped", replicas: 1, share: unnamedShare, hits: floors{95, 70}, engines: `{"template":"strip_reasoning","empty_deltas":true,"merge_system":true}`},
		// Hand-backs come within 20 ms, and a replica does not wait for those of another.
		{name: "handing back", replicas: 2, share: unnamedShare, hits: floors{50, 35}, engines: `{"template":"thinking_prompt","sampling":"noncanonical"}`, flags: append([]string{"--routing-prefill", "auto"}, handBackModes()["idle"]...), handing: true},
	}
}

type unnamedSoak struct {
	name     string
	replicas int // that share one Redis; one replica has its tickets in memory
	share    int // one in so many of the conversations
	hits     floors
	engines  string // as their configuration has it
	flags    []string
	handing  bool
}

// floors are the shares of turns that must be hits, in percent, among those that go on where a ticket of their own thread has ended. Of
// conversations that begin alike, one may take the ticket of another's first answer: the answers are greedy here, so that their tickets are
// equal.
type floors struct{ own, alike int }

// Conversations that nothing names, of all APIs and of one tenant; a third of them begin with the same messages. Some histories are edited,
// some answers made anew, and some threads split in two that go on at the same time. No answer is wrong, no block is read wrongly or twice,
// none stays pinned, and turns find what their conversation has left.
func TestByContent_SoakOfConversationsWithoutIDs(t *testing.T) {
	t.Parallel()
	for i, soak := range unnamedSoaks() {
		t.Run(soak.name, func(t *testing.T) {
			t.Parallel()
			soak.run(t, uint64(800+i), soakSize(t, unnamedShort/min(2, soak.share), soak.share))
		})
	}
}

func (c unnamedSoak) run(t *testing.T, seed uint64, conversations int) {
	t.Helper()
	began := time.Now()
	cfg := engineWith(c.engines)
	// No answer waits for memory, what is left on prefill is counted at the end, and agents are served.
	fill(t, &cfg, []byte(`{"blocks":131072,"lease":3600000000000,"render":true,"output_token_ids":true,"message_params":true}`))
	live := &ledger{}
	redis := []string{""}
	if c.replicas > 1 {
		redis = slices.Repeat([]string{redistest.Start(t).Addr()}, c.replicas)
	}
	f := startFleet(t, rigConfig{
		cfg: cfg, replace: func(deps *server.Deps) { deps.Store = live.live(deps.Store) },
		flags: slices.Concat(byContent, []string{"--store-timeout", "5s"}, c.flags),
	}, redis...)
	s := &unnamed{soak: f.soakOf(seed), handing: c.handing}
	severally(t, soakAtOne, conversations, func(ctx context.Context, i int) error { return s.converse(ctx, newSpeaker(seed, i), 1, nil) })
	live.verifyPinned(t, f.replicas[0], time.Since(began))
	f.verify(t)
	t.Logf("%d conversations, %d turns in %s: %s", conversations, s.turns.Load(), time.Since(began).Round(time.Millisecond), &s.tally)
	s.tally.verify(t, c.hits)
	if c.handing && (f.replicas[0].atPrefill("hand_backs") == 0 || s.tally.engine == 0) {
		t.Errorf("%d hand-backs, and %d turns that found what came of them: nothing was shown",
			f.replicas[0].atPrefill("hand_backs"), s.tally.engine)
	}
}

// converse holds a conversation from a turn on. The ticket is that of the turn before in the same thread.
func (s *unnamed) converse(ctx context.Context, k *speaker, from int, ticket *kept) error {
	group, ctx := errgroup.WithContext(ctx)
	defer group.Wait() //nolint:errcheck // waited for below, unless this thread has failed
	for turn := from; turn <= soakTurns; turn++ {
		if other := k.split(turn); other != nil {
			ticket = nil // one of the two takes it
			group.Go(func() error { return s.converse(ctx, other, turn, nil) })
		}
		name := fmt.Sprintf("%s-%d-%d", k.name(), turn, s.turns.Add(1))
		ask, err := k.ready(ctx, s.soak, name, turn, false)
		if err != nil {
			return fmt.Errorf("%s, alone: %w", name, err)
		}
		ids := slices.Concat(ask.prompt, ask.output)
		s.puts(ids) // before another turn can find the ticket
		a, rec, err := s.turn(ctx, ask, name)
		if err == nil {
			err = s.judge(k, ask, a.reuse(), ticket)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if ticket = nil; rec.Stored == "yes" {
			ticket = &kept{ids: ids}
			if s.handing && turn == soakTurns-1 { // the last turn comes after a pause
				testrig.Eventually(func() bool {
					return !slices.ContainsFunc(s.fronts, func(r *rig) bool { return len(r.proxy.Server.Pins.TicketsOut(rec.Conversation)) > 0 })
				})
			}
		}
	}
	return group.Wait()
}

// judge compares what a turn has reused with the books.
func (s *unnamed) judge(k *speaker, ask asking, reuse string, ticket *kept) error {
	if bound := s.bound(ask.prompt); offeredIn(reuse) > bound && !byEngine(reuse) { // prefill's cache also has prompts whose answers left nothing
		return fmt.Errorf("%s, but nothing that was answered has more than %d tokens of the prompt", reuse, bound)
	}
	if ticket != nil && !ask.rewritten && reuse != "off" && ticket.worth(ask.prompt) > 0 {
		s.tally.count(k.alike, reuse)
	}
	return nil
}

// Completions that share a template and no history are no conversation: none takes the ticket of another, and none is a hit.
func TestByContent_CompletionsOfATemplateLeaveEachOtherTheirTickets(t *testing.T) {
	r := startRig(t, rigConfig{
		flags: []string{"--conversation-by-content", "on", "--teach-shapes", "off"}, cfg: engineWith(`{"output_token_ids":true}`),
	})
	template := strings.Repeat(longText(3)+" ", 12)[:2370] // the largest anchor of these prompts, of 2,048 bytes, is within it
	ask := func(prompt string) *answered {
		a := r.say(t, object{"model": "sim", "temperature": 0, "stream": true, "prompt": prompt, "max_tokens": 40})
		if r.turns.await(t, a.header.Get("X-Request-Id")); a.status != http.StatusOK {
			t.Fatalf("%.600s", a.raw)
		}
		return a
	}
	prompt, last := "", &answered{}
	for i := range 6 {
		prompt = fmt.Sprintf("%sNumber %d, %.80s", template, i, longText(40+i))
		if last = ask(prompt); last.hit() {
			t.Errorf("request %d: %s", i, last.reuse())
		}
	}
	if a := ask(prompt + last.content + " And then? "); !a.hit() {
		t.Errorf("a completion that is continued: %s", a.reuse())
	}
	r.verifyReads(t)
}
