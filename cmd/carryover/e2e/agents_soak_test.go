package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// agentSoaks are the deployments in which agents talk.
func agentSoaks() map[string]string {
	return map[string]string{
		"append-only": `{"render":true,"output_token_ids":true,"message_params":true}`,
		"reasoning stripped, inline system merged": `{"render":true,"output_token_ids":true,"message_params":true,"template":"strip_reasoning","merge_system":true}`,
		"thinking prompt, non-canonical":           `{"render":true,"output_token_ids":true,"message_params":true,"template":"thinking_prompt","sampling":"noncanonical"}`,
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
			s := newSoak(t, agentSoaks()[name], seed)
			s.run(t, soakSize(t, agentsShort, agentsShare), func(i int) voice {
				k := newAgentTalk(s.seed, i)
				return &session{agentTalk: k, sub: k.sub(), asked: map[*agentTalk]int{}}
			})
		})
	}
}

// session is an agent in whose session now and then a sub-agent speaks.
type session struct {
	*agentTalk
	sub   *agentTalk
	asked map[*agentTalk]int
}

func (*session) turns() int { return soakTurns + 2 }

func (k *session) ready(ctx context.Context, s *soak, name string, turn int, named bool) (asking, error) {
	speaks := k.agentTalk
	if turn > 1 && k.odds(4) {
		speaks = k.sub
	}
	k.asked[speaks]++
	return speaks.ready(ctx, s, name, k.asked[speaks], named)
}

func (k *agentTalk) again(draw *rand.Rand) voice {
	other := *k
	other.draw, other.history, other.results = draw, slices.Clone(k.history), slices.Clone(k.results)
	return &other
}

func (k *agentTalk) ready(ctx context.Context, s *soak, name string, turn int, _ bool) (asking, error) {
	header, body := k.next(turn)
	header.Set("X-Request-Id", name)
	right, prompt, output, err := s.rightForAgent(ctx, k, body)
	return asking{prompt: prompt, output: output, rewritten: k.rewritten, send: func(front *rig) (*answered, error) {
		a, err := front.askAgent(ctx, k.path, header, body)
		if err == nil {
			err = sameSaid(a, right)
		}
		if err != nil {
			return a.answered, fmt.Errorf("%s, stream %v: %w", k.path, body["stream"], err)
		}
		k.heard(a)
		return a.answered, nil
	}}, err
}

func (*agentTalk) misses(reuse string, tickets, worth int) error {
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

// rightForAgent asks the lone instance, in a part of its cache that no other request shares: for the answer, for the ids of the prompt,
// and for those that it samples to them.
func (s *soak) rightForAgent(ctx context.Context, k *agentTalk, members object) (a *agentAnswer, prompt, output []int, err error) {
	body := maps.Clone(members)
	body["cache_salt"] = strconv.FormatUint(rand.Uint64(), 36)
	if a, err = s.lone.askAgent(ctx, k.path, nil, body); err != nil {
		return nil, nil, nil, err
	}
	if a.status != http.StatusOK {
		return nil, nil, nil, fmt.Errorf("status %d: %s", a.status, a.raw)
	}
	body["stream"] = false
	rendered, err := s.lone.post(ctx, k.path+"/render", nil, encode(body), unwatched)
	if err != nil {
		return nil, nil, nil, err
	}
	prompt = numbers(gjson.GetBytes(rendered.raw, "token_ids"))
	limit := body["max_tokens"]
	if limit == nil {
		limit = body["max_output_tokens"]
	}
	forced, err := s.lone.post(ctx, "/v1/chat/completions", nil, encode(object{
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
