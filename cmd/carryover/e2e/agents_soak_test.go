package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"carryover/server/record"
	"carryover/upstream/vllmsim"
)

// agentSoaks are the deployments in which agents talk.
func agentSoaks() map[string]func(*vllmsim.Config) {
	return map[string]func(*vllmsim.Config){
		"append-only": func(*vllmsim.Config) {},
		"reasoning stripped, inline system merged": func(c *vllmsim.Config) {
			c.Template, c.MergeSystem = vllmsim.TemplateStripReasoning, true
		},
		"thinking prompt, non-canonical": func(c *vllmsim.Config) {
			c.Template, c.Sampling = vllmsim.TemplateThinkingPrompt, vllmsim.SamplingNoncanonical
		},
	}
}

// Conversations of each deployment within go test. With CARRYOVER_SOAK each has a fortieth of what it says.
const agentsShort, agentsShare = 12, 40

// Agents of either API, with the histories that they send: no KV is read wrongly, every answer is that of a lone engine, what could be
// reused is, and what is said of a miss is true.
func TestAgents_SoakOfRandomConversations(t *testing.T) {
	t.Parallel()
	seed := uint64(700)
	for _, name := range slices.Sorted(maps.Keys(agentSoaks())) {
		seed++
		t.Run(name, func(t *testing.T) {
			s := newSoak(t, func(c *vllmsim.Config) {
				c.Render, c.OutputTokenIDs, c.MessageParams = true, true, true
				agentSoaks()[name](c)
			}, seed)
			s.runAgents(t, soakSize(t, agentsShort, agentsShare))
		})
	}
}

func (s *soak) runAgents(t *testing.T, conversations int) {
	t.Helper()
	began := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(soakAtOne)
	for i := range conversations {
		group.Go(func() error { return s.converseAgent(ctx, newAgentTalk(s.seed, i), i >= conversations/soakLearning) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	s.pins.end()
	s.verifyCounters(t)
	s.verifyReads(t, 0)
	k := s.tally
	t.Logf("%d conversations in %s; of the last two thirds: %d later turns, %d hits, %d of %d provable tokens offered (%d in common at all); misses %v",
		conversations, time.Since(began).Round(time.Millisecond), k.turns, k.hits, k.offered, k.possible, k.shared, s.reasons)
	if k.hits == 0 || k.offered*100 < k.possible*95 {
		t.Errorf("%d hits; offered %d of %d provable tokens, want 95 %%", k.hits, k.offered, k.possible)
	}
}

// converseAgent holds one conversation, in which now and then a sub-agent of the same session speaks.
func (s *soak) converseAgent(ctx context.Context, main *agentTalk, counted bool) error {
	var tickets, ever shelf
	sub := main.sub()
	turns := map[*agentTalk]int{}
	for turn := 1; turn <= soakTurns+2; turn++ {
		k := main
		if turn > 1 && main.odds(4) {
			k = sub
		}
		turns[k]++
		name := main.id + "-" + strconv.Itoa(turn)
		header, body := k.next(turns[k])
		header.Set("X-Request-Id", name)
		right, prompt, output, err := s.rightForAgent(ctx, k, body)
		if err != nil {
			return fmt.Errorf("%s alone: %w", name, err)
		}
		a, rec, err := s.agentTurn(ctx, k, header, body)
		if err == nil {
			err = sameSaid(a, right)
		}
		if err != nil {
			return fmt.Errorf("%s (%s, stream %v): %w", name, k.path, body["stream"], err)
		}
		at, want, common := tickets.best(prompt)
		got, bound := offeredBy(a.answered), 0
		for _, ticket := range ever.tickets {
			bound = max(bound, ticket.provable(prompt))
		}
		if got > bound {
			return fmt.Errorf("%s: %s, but no ticket has more than %d tokens of the prompt", name, a.reuse(), bound)
		}
		if err := trueMiss(a.reuse(), len(tickets.tickets), want); err != nil {
			return fmt.Errorf("%s (%s): %w; %d in common", name, k.path, err, common)
		}
		if got > 0 && at >= 0 {
			tickets.use(at)
		}
		if rec.Stored == "yes" {
			ticket := kept{ids: slices.Concat(prompt, output)}
			tickets.put(ticket)
			ever.tickets = append(ever.tickets, ticket)
		}
		if counted && turn > 1 {
			s.count(a.reuse(), got, want, common)
		}
		k.heard(a)
	}
	return nil
}

// trueMiss checks what is said of a miss against the books.
func trueMiss(reuse string, tickets, worth int) error {
	reason, missed := strings.CutPrefix(noHit(reuse), "miss;reason=")
	reason, _, _ = strings.Cut(reason, ";")
	switch {
	case !missed:
		return nil
	case reason == "first_turn", reason == "nothing_stored", reason == "consumed":
		if tickets > 0 {
			return fmt.Errorf("%s, but there are %d tickets", reuse, tickets)
		}
	case reason == "history_rewritten", reason == "below_threshold":
		if tickets == 0 || worth > 0 {
			return fmt.Errorf("%s, but there are %d tickets, of which %d tokens are worth it", reuse, tickets, worth)
		}
	case reason == "pair_on_trial":
	default:
		return fmt.Errorf("%s is true of no turn here", reuse)
	}
	return nil
}

// agentTurn sends a request through the program.
func (s *soak) agentTurn(ctx context.Context, k *agentTalk, header http.Header, body object) (*agentAnswer, record.Turn, error) {
	defer s.pins.begin()()
	a, err := s.askAgent(ctx, k.path, header, body)
	if err != nil {
		return a, record.Turn{}, err
	}
	select {
	case rec := <-s.turns.turn(header.Get("X-Request-Id")):
		s.sees(a.answered, &rec)
		return a, rec, nil
	case <-time.After(time.Minute):
		return a, record.Turn{}, errors.New("no record after a minute")
	}
}

// rightForAgent asks the lone instance, in a part of its cache that no other request shares: for the answer, for the ids of the prompt,
// and for those that it samples to them.
func (s *soak) rightForAgent(ctx context.Context, k *agentTalk, members object) (a *agentAnswer, prompt, output []int, err error) {
	body := maps.Clone(members)
	body["cache_salt"] = strconv.FormatUint(rand.Uint64(), 36)
	if a, err = s.lone.askAgent(ctx, k.path, http.Header{}, body); err != nil {
		return nil, nil, nil, err
	}
	if a.status != http.StatusOK {
		return nil, nil, nil, fmt.Errorf("status %d: %s", a.status, a.raw)
	}
	body["stream"] = false
	rendered, err := s.lone.post(ctx, k.path+"/render", http.Header{}, encode(body), unwatched)
	if err != nil {
		return nil, nil, nil, err
	}
	prompt = numbers(gjson.GetBytes(rendered.raw, "token_ids"))
	limit := body["max_tokens"]
	if limit == nil {
		limit = body["max_output_tokens"]
	}
	forced, err := s.lone.post(ctx, "/v1/chat/completions", http.Header{}, encode(object{
		"model": "sim", "messages": []any{map[string]string{"role": "user", "content": "x"}}, "max_tokens": limit, "temperature": 0, "return_token_ids": true,
		"cache_salt": body["cache_salt"], "kv_transfer_params": object{"prompt_token_ids": prompt},
	}), unwatched)
	if err != nil {
		return nil, nil, nil, err
	}
	output = numbers(gjson.GetBytes(forced.raw, "choices.0.token_ids"))
	if len(prompt) != a.prompt || len(output) == 0 {
		return nil, nil, nil, fmt.Errorf("%d ids rendered of a prompt of %d, %d sampled: %.300s", len(prompt), a.prompt, len(output), forced.raw)
	}
	return a, prompt, output, nil
}
