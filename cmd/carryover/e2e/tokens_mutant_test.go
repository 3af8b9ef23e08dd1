package e2e

import (
	"context"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/convcache"
	"carryover/server"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// The mutants of the token proof and of release, as those in mutant_test.go: each takes
// one rule away from the program, and the simulator must notice.

func unchanged(*server.Deps) {}

// noticed asserts that nothing was read wrongly, or with a mutant that something was.
func (r *rig) noticed(t *testing.T, mutant bool) {
	t.Helper()
	r.stop()
	if wrong := r.wrong(); (wrong > 0) != mutant {
		t.Errorf("wrong reads: got %d, with a mutant: %v", wrong, mutant)
	}
}

// offering changes what the connector is told to make of a ticket.
type offering struct {
	upstream.Connector
	change func(o *upstream.TicketOffer)
}

// Plan implements upstream.Connector.
func (c offering) Plan(ctx context.Context, transfer upstream.Transfer) (upstream.Plan, error) {
	if transfer.Offer.Ticket != nil {
		c.change(&transfer.Offer)
	}
	return c.Connector.Plan(ctx, transfer)
}

// Release implements upstream.Connector.
func (c offering) Release(o upstream.TicketOffer, model string) (upstream.ReleaseLeg, error) {
	c.change(&o)
	return c.Connector.Release(o, model)
}

func heldBy(o *upstream.TicketOffer) int {
	return int(gjson.GetBytes(o.Ticket, "remote_num_tokens").Int())
}

func TestMutant_OfferBeyondWhatIsProvenTheOracleSeesIt(t *testing.T) {
	for name, change := range map[string]func(o *upstream.TicketOffer){
		"as it is":           func(*upstream.TicketOffer) {},
		"not shortened":      func(o *upstream.TicketOffer) { o.Tokens = heldBy(o) },
		"one block too many": func(o *upstream.TicketOffer) { o.Tokens = min(o.Tokens+o.BlockSize, heldBy(o)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := startMutant(t, func(deps *server.Deps) { deps.Connector = offering{deps.Connector, change} })
			c := r.talk("edited")
			for range 6 { // both instances know the shapes, and what is not edited is right
				c.turn(t)
			}
			last := len(c.h.messages) - 1
			said := gjson.GetBytes(c.h.messages[last], "content").String()
			c.h.messages[last] = encode(map[string]string{"role": "assistant", "content": said[:len(said)*3/4] + " and " + longText(60)})
			a := r.askAs(t, "edited", append(c.h.messages, says(77))...)
			if !a.hit() {
				t.Fatalf("X-KV-Reuse %q: nothing is shown", a.reuse())
			}
			r.noticed(t, name != "as it is")
		})
	}
}

// Where sampled tokens are not those of their text, equal histories are not equal KV.
func TestMutant_WholeTicketsOfOtherTokensTheOracleSeesIt(t *testing.T) {
	bothWays(t, func(t *testing.T, mutant bool) {
		r := startRig(t, rigConfig{taught: true, cfg: engineWith(`{"sampling":"noncanonical"}`), replace: func(deps *server.Deps) {
			if mutant {
				deps.Connector = offering{deps.Connector, func(o *upstream.TicketOffer) { o.Tokens = heldBy(o) }}
			}
		}})
		var messages speech
		for n := range 6 {
			messages = append(messages, says(n))
			messages = append(messages, r.askAs(t, "sampled", messages...).assistant())
		}
		r.noticed(t, mutant)
	})
}

func TestMutant_ReleaseWithATokenCountTheOracleSeesIt(t *testing.T) {
	bothWays(t, func(t *testing.T, mutant bool) {
		r := startMutant(t, func(deps *server.Deps) {
			deps.Connector = offering{deps.Connector, func(o *upstream.TicketOffer) {
				if o.Release && mutant {
					o.Release, o.Tokens, o.BlockSize = false, heldBy(o), simBlock
				}
			}}
		}, "--release", "on")
		for n := range 6 {
			noError(t, r.oneShot(t.Context(), n))
		}
		r.noticed(t, mutant)
	})
}

// legChanger changes legs and answers on their way.
type legChanger struct {
	upstream.Legs
	prefillBody, decodeBody func(body []byte) []byte
	prefilled               func(body []byte, answer *upstream.PrefillAnswer)
}

// Prefill implements upstream.Legs.
func (e *legChanger) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	body := leg.Body.Bytes()
	if e.prefillBody != nil {
		leg.Body = rawjson.Pieces{e.prefillBody(body)}
	}
	answer, err := e.Legs.Prefill(ctx, leg)
	if e.prefilled != nil && err == nil {
		e.prefilled(body, &answer)
	}
	return answer, err
}

// Decode implements upstream.Legs.
func (e *legChanger) Decode(ctx context.Context, leg upstream.Leg, limits upstream.Limits) (*upstream.Stream, error) {
	if e.decodeBody != nil {
		leg.Body = rawjson.Pieces{e.decodeBody(leg.Body.Bytes())}
	}
	return e.Legs.Decode(ctx, leg, limits)
}

// Decode renders with another template than prefill here, which is no fault as long as
// it gets the ids that prefill computed.
func TestMutant_WithoutIDsOnTheDecodeLegTheOracleSeesIt(t *testing.T) {
	bothWays(t, func(t *testing.T, mutant bool) {
		prefill, decode := vllmsim.DefaultConfig(), vllmsim.DefaultConfig()
		decode.Template = vllmsim.TemplateThinkingPrompt
		r := startRig(t, rigConfig{
			prefill: []vllmsim.Config{prefill}, decode: []vllmsim.Config{decode},
			replace: func(deps *server.Deps) {
				if mutant {
					ids := regexp.MustCompile(`,?"prompt_token_ids":\[[^\]]*\]`)
					deps.Legs = &legChanger{Legs: deps.Legs, decodeBody: func(body []byte) []byte { return ids.ReplaceAll(body, nil) }}
				}
			},
		})
		c := r.talk("templates")
		if !mutant {
			c.learnt(t)
			c.want(t, "hit;")
			r.noticed(t, false)
			return
		}
		r.askAs(t, "templates", says(1))
		r.noticed(t, true)
	})
}

func TestMutant_WithoutIDEchoTheOracleSeesIt(t *testing.T) {
	bothWays(t, func(t *testing.T, mutant bool) {
		var lies atomic.Bool
		tamper := &tampering{request: func(path string, body []byte) []byte {
			if lies.Load() {
				return otherID(path, body)
			}
			return body
		}}
		r := startRig(t, rigConfig{tamper: tamper, replace: func(deps *server.Deps) {
			if mutant {
				deps.Legs = &legChanger{Legs: deps.Legs, prefilled: func(body []byte, answer *upstream.PrefillAnswer) {
					if sent := gjson.GetBytes(body, "kv_transfer_params.prompt_token_ids"); sent.IsArray() {
						answer.PromptIDs = []byte(sent.Raw)
					}
				}}
			}
		}})
		c := r.talk("id-echo")
		c.learnt(t)
		lies.Store(true)
		r.askAs(t, "id-echo", append(c.h.messages, says(77))...)
		r.noticed(t, mutant)
	})
}

// recalling hands out a ticket and later says that it has displaced it.
func recalling(store convcache.Store) convcache.Store {
	var mu sync.Mutex // guards used
	var used []convcache.Ticket
	return &tapped{Store: store, taken: func(ticket *convcache.Ticket) {
		mu.Lock()
		defer mu.Unlock()
		used = append(used, *ticket)
	}, kept: func(_ convcache.Ticket, displaced *[]convcache.Ticket, _ convcache.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		*displaced, used = append(*displaced, used...), nil
	}}
}

// A store that hands out what was used breaks the first line; the second drops what names the same blocks.
func TestMutant_ReleaseAfterUseIsDropped(t *testing.T) {
	bothWays(t, func(t *testing.T, mutant bool) {
		seen := newUses()
		r := startMutant(t, func(deps *server.Deps) {
			seen.watch(deps)
			if mutant {
				deps.Store = recalling(deps.Store)
			}
		}, "--release", "on")
		c := r.talk("used")
		for n := range 6 {
			c.turn(t)
			noError(t, r.oneShot(t.Context(), n))
		}
		r.stop()
		late, twice := r.atDecode("late_notifications"), len(seen.twice())
		if late != 0 || twice != 0 {
			t.Errorf("late notifications: got %d, blocks named twice: %d, want none", late, twice)
		}
		if said := r.turns.count("ERROR two tickets name the same blocks; one is dropped") > 0; said != mutant {
			t.Errorf("the log says that tickets were dropped: %v, with a mutant: %v", said, mutant)
		}
	})
}

// A title call shares the system prompt with the conversation, and nothing else.
func TestMutant_TitleCallEatsTheTicketWithoutThresholds(t *testing.T) {
	bothWays(t, func(t *testing.T, mutant bool) {
		r := startRig(t, rigConfig{prefills: 2, flags: []string{"--routing-prefill", "round_robin"}, server: func(c *server.Config) {
			if mutant {
				c.ReuseMinShare, c.ReuseMinTokens = 0, 1
			}
		}})
		system := encode(map[string]string{"role": "system", "content": "Be patient. " + longText(3)})
		c := &chatting{rig: r, id: "titled", h: history{messages: speech{system}}}
		for range 6 {
			c.turn(t)
		}
		if a := r.askAs(t, "titled", system, question("SAY A title.")); a.hit() != mutant {
			t.Errorf("title call: X-KV-Reuse %q, with a mutant: %v", a.reuse(), mutant)
		}
		if a := c.turn(t); (offeredBy(a) < 500) != mutant {
			t.Errorf("turn after the title call: X-KV-Reuse %q, with a mutant: %v", a.reuse(), mutant)
		}
		r.noticed(t, false)
	})
}
