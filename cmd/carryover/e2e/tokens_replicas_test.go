package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"carryover/convcache"
	"carryover/server"
	"carryover/upstream/vllmsim"
)

// mixingStore hands out another branch of the conversation than was asked for, as a store
// does that knows conversations and no tickets: the look-up saw what one replica left
// behind, the take gets what the other did.
type mixingStore struct {
	convcache.Store
	mixes bool
	// blind makes what was taken look like what was peeked at: the comparison after the
	// take sees no difference.
	blind bool
}

// Take implements convcache.Store.
func (s *mixingStore) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	branches, _ := s.Peek(ctx, []convcache.Key{key})
	if !s.mixes || len(branches) != 2 {
		return s.Store.Take(ctx, key, id)
	}
	asked, other := branches[0], branches[1]
	if asked.ID != id {
		asked, other = other, asked
	}
	ticket, outcome := s.Store.Take(ctx, key, other.ID)
	if s.blind {
		ticket.Chain, ticket.Tokens = asked.Chain, asked.Tokens
	}
	return ticket, outcome
}

// Two replicas answer the same turn with the same text and different tokens; the next
// turn goes to the first of them.
func TestTokenProof_TwoReplicasAnswerOneTurnWithDifferentTokens(t *testing.T) {
	for _, tc := range []struct {
		name         string
		mixes, blind bool
		want         string
	}{
		{"a take by ticket", false, false, "hit;"},
		{"a take by conversation", true, false, "miss;reason=history_rewritten"},
		{"mutant: no comparison after the take", true, true, "hit;"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := &mixingStore{}
			first, second := startReplicas(t, store)
			first.talk("learning").learnt(t)
			c := first.talk("both")
			c.h.messages = append(c.h.messages, says(91))
			first.between.act(func(context.Context) { answerDifferently(t, first, &chatting{rig: second, id: "both", h: c.h}) })
			a := c.repeat(t)
			c.h.messages = append(c.h.messages, a.assistant(), says(92))
			store.mixes, store.blind = tc.mixes, tc.blind
			if !tc.blind {
				if a = c.repeat(t); !strings.HasPrefix(noHit(a.reuse()), tc.want) {
					t.Errorf("X-KV-Reuse %q, want %s", a.reuse(), tc.want)
				}
				second.stop()
				first.verifyReads(t)
				return
			}
			a = first.askAs(t, "both", c.h.messages...)
			if !strings.HasPrefix(noHit(a.reuse()), tc.want) {
				t.Fatalf("X-KV-Reuse %q: the mutant does not work", a.reuse())
			}
			first.stop()
			if first.wrong() == 0 || a.content == longText(92)+"." {
				t.Error("the ticket of other tokens was used, and it was not noticed")
			}
		})
	}
}

// startReplicas runs two programs on the same instances with the same secret and store.
func startReplicas(t *testing.T, store *mixingStore) (first, second *rig) {
	t.Helper()
	c := rigConfig{
		env: []string{"CARRYOVER_SECRET=of both replicas, 32 bytes long"},
		replace: func(deps *server.Deps) {
			if store.Store == nil {
				store.Store = deps.Store
			}
			deps.Store = store
		},
	}
	first = startRig(t, c)
	c.sharing = first
	return first, startRig(t, c)
}

// answerDifferently takes the turn through the other replica while decode samples the
// same text as other tokens.
func answerDifferently(t *testing.T, first *rig, c *chatting) {
	t.Helper()
	sampling := func(how string) {
		if err := first.decode[0].Switch(vllmsim.Switches{Sampling: &how}); err != nil {
			t.Error(err)
		}
	}
	sampling(vllmsim.SamplingNoncanonical)
	defer sampling(vllmsim.SamplingCanonical)
	a, err := c.post(context.Background(), "/v1/chat/completions", http.Header{},
		encode(object{"model": "sim", "messages": c.h.messages, "max_tokens": 400, "conversation_id": c.id}), unwatched)
	if err != nil || a.status != http.StatusOK {
		t.Errorf("the other replica: %v", err)
	}
}
