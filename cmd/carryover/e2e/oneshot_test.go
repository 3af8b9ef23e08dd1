package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/server/continuation"
	"carryover/server/record"
	"carryover/upstream"
)

// oneShots sends requests that nobody goes on with, one at a time.
type oneShots struct {
	*rig
	legs   *namingLegs
	sent   int
	learnt string // what that cost
}

// namingLegs counts the answered legs that name blocks of decode.
type namingLegs struct {
	server.Legs
	answered atomic.Int64
}

// Prefill implements server.Legs.
func (l *namingLegs) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	a, err := l.Legs.Prefill(ctx, leg)
	l.count(leg, err)
	return a, err
}

// HandBack implements server.Legs.
func (l *namingLegs) HandBack(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	a, err := l.Legs.HandBack(ctx, leg)
	l.count(leg, err)
	return a, err
}

func (l *namingLegs) count(leg upstream.Leg, err error) {
	if err == nil && gjson.GetBytes(leg.Body.Bytes(), "kv_transfer_params.remote_block_ids").IsArray() {
		l.answered.Add(1)
	}
}

// A round has a request of each API, as a stream and whole.
var oneShotPaths = []string{"/v1/chat/completions", pathMessages, pathResponses, "/v1/completions"}

// instruction begins each prompt: a client that sends one-shot requests sends many of a kind.
var instruction = "Classify what follows as praise, complaint or question, and give one word as the answer. " + longText(3) + "\n\n"

func (s *oneShots) round(t *testing.T) (turns []record.Turn) {
	t.Helper()
	for i := range 2 * len(oneShotPaths) {
		turns = append(turns, s.turn(t, oneShotPaths[i/2], i%2 == 0))
	}
	return turns
}

// turn sends a request and waits until nothing moves. One in six is sent a second time in the same words.
func (s *oneShots) turn(t *testing.T, path string, stream bool) record.Turn {
	t.Helper()
	words := s.sent - s.sent/6%2
	s.sent++
	content := fmt.Sprintf("%sNumber %d. %s", instruction, words, strings.Repeat(longText(words)+" ", words%5))
	body := map[string]any{"model": "sim", "stream": stream, "temperature": 0}
	messages := []any{map[string]string{"role": "user", "content": content}}
	switch path {
	case pathMessages:
		body["system"], body["max_tokens"], body["messages"] = "You are brief.", 20, messages
	case pathResponses:
		body["instructions"], body["max_output_tokens"], body["input"] = "You are brief.", 20, content
	case "/v1/completions":
		body["max_tokens"], body["prompt"] = 20, content
	default:
		body["max_tokens"], body["messages"] = 20, append([]any{map[string]string{"role": "system", "content": "You are brief."}}, messages...)
	}
	id := fmt.Sprintf("one-shot-%d", s.sent)
	a, err := s.post(t.Context(), path, http.Header{"X-Request-Id": {id}}, encode(body), unwatched)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%s: %v: %.600s", path, err, a.raw)
	}
	rec := s.turns.await(t, id)
	s.settle(t)
	for _, instance := range s.all("") {
		instance.Advance(time.Second)
	}
	return rec
}

// settle waits until decode knows of each answered leg that named its blocks: prefill tells it without having the leg wait.
func (s *oneShots) settle(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool {
		d := s.sum(t, config.RoleDecode)
		return d["reads"]+d["releases"]+d["late_notifications"] == int(s.legs.answered.Load()) && s.sum(t, "")["running"] == 0
	}) {
		t.Fatalf("%d legs have named blocks, and decode knows of others: %v", s.legs.answered.Load(), s.sum(t, config.RoleDecode))
	}
}

// learn sends the traffic until all its kinds are known, and waits until nothing of it is pinned but what the next turn releases. learns is
// false where nothing is learnt; then as much is sent.
func (s *oneShots) learn(t *testing.T, learns bool) {
	t.Helper()
	before, waited, tokenSeconds := s.cost(t), 0, 0.0
	rounds := func(n int) (known bool) {
		for range n {
			known = true
			for _, turn := range s.round(t) {
				keep := turn.End.Keep
				if keep.For > 0 {
					waited++
					tokenSeconds += keep.For.Seconds() * float64(turn.Answer.PromptTokens+turn.Answer.CompletionTokens)
				}
				known = known && keep.What == continuation.Release.String()
			}
		}
		if learns && !testrig.Eventually(func() bool { return s.sum(t, config.RoleDecode)["pins"] <= 1 }) {
			t.Fatalf("decode pins %d answers", s.sum(t, config.RoleDecode)["pins"])
		}
		return known
	}
	rounds(continuation.Enough / 2) // each has two requests of a kind
	for i := 0; !rounds(1) && learns; i++ {
		if i > continuation.Enough {
			t.Fatal("kinds of answers that are never continued are not known as such")
		}
	}
	cost := s.cost(t).since(before)
	s.learnt = fmt.Sprintf("%d of %d answers waited, which takes %.0f token-seconds, and %d legs to prefill", waited, cost.turns, tokenSeconds, cost.legs)
}

type oneShotCost struct{ turns, tokenSeconds, legs int }

func (c oneShotCost) since(before oneShotCost) oneShotCost {
	return oneShotCost{c.turns - before.turns, c.tokenSeconds - before.tokenSeconds, c.legs - before.legs}
}

// cost is what the traffic has cost until now, by the engines' own accounts.
func (s *oneShots) cost(t *testing.T) oneShotCost {
	t.Helper()
	return oneShotCost{
		turns: s.sent, tokenSeconds: s.sum(t, config.RoleDecode)["pinned_token_seconds"],
		legs: s.sum(t, config.RolePrefill)["requests"],
	}
}
