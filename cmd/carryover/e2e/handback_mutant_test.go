package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// The mutants of hand-back, as those in mutant_test.go: each takes one rule away from the program, and the simulator must notice, or
// an answer is wrong.

// respelling changes the legs of hand-backs when the connector has made them: it makes none of what is not whole.
type respelling struct {
	upstream.Connector
	change func(leg map[string]json.RawMessage)
}

// HandBack implements upstream.Connector.
func (c respelling) HandBack(o upstream.TicketOffer, model, salt string) (upstream.ReleaseLeg, error) {
	made, err := c.Connector.HandBack(o, model, salt)
	if err != nil {
		return made, err
	}
	leg := map[string]json.RawMessage{}
	if err := json.Unmarshal(made.Body, &leg); err != nil {
		return made, err
	}
	c.change(leg)
	made.Body = encode(leg)
	return made, nil
}

// prompted changes the ids of a leg.
func prompted(change func(ids []int) []int) func(leg map[string]json.RawMessage) {
	return func(leg map[string]json.RawMessage) {
		leg["prompt"] = encode(change(numbers(gjson.ParseBytes(leg["prompt"]))))
	}
}

// oneBlockMore reads one block, and its tokens, more than the ticket has: the last one twice.
func oneBlockMore(leg map[string]json.RawMessage) {
	params := map[string]json.RawMessage{}
	if json.Unmarshal(leg["kv_transfer_params"], &params) != nil {
		return
	}
	blocks := numbers(gjson.GetBytes(params["remote_block_ids"], "0"))
	params["remote_block_ids"] = encode([][]int{append(blocks, blocks[len(blocks)-1])})
	params["remote_num_tokens"] = encode(gjson.ParseBytes(params["remote_num_tokens"]).Int() + simBlock)
	leg["kv_transfer_params"] = encode(params)
}

// believing is legs whose hand-backs always have the receipt that is wanted: the program does not compare.
type believing struct {
	upstream.Legs
	mu  sync.Mutex // guards ids
	ids []byte     // of the ticket
}

// HandBack implements upstream.Legs.
func (b *believing) HandBack(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	answer, err := b.Legs.HandBack(ctx, leg)
	b.mu.Lock()
	defer b.mu.Unlock()
	answer.PromptIDs, answer.PromptTokens = b.ids, 0
	return answer, err
}

// listening remembers the ids that a hand-back is to be made of.
type listening struct {
	upstream.Connector
	of *believing
}

// HandBack implements upstream.Connector.
func (c listening) HandBack(o upstream.TicketOffer, model, salt string) (upstream.ReleaseLeg, error) {
	c.of.mu.Lock()
	c.of.ids = append([]byte{}, o.PromptIDs...)
	c.of.mu.Unlock()
	return c.Connector.HandBack(o, model, salt)
}

func TestHandBackMutant_LegOfAnythingButTheTicketTheOracleSeesIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(leg map[string]json.RawMessage)
		seen   string
	}{
		"as it is":         {func(map[string]json.RawMessage) {}, ""},
		"an id too many":   {prompted(func(ids []int) []int { return append(ids, 300) }), "uneven_hand_backs"},
		"an id too few":    {prompted(func(ids []int) []int { return ids[:len(ids)-1] }), "uneven_hand_backs"},
		"another id":       {prompted(func(ids []int) []int { ids[len(ids)-40]++; return ids }), "corrupt_reads"},
		"the ids of less":  {prompted(func(ids []int) []int { return ids[:len(ids)-2*simBlock] }), "uneven_hand_backs"},
		"a block too many": {oneBlockMore, "uneven_hand_backs"},
		"another salt":     {func(leg map[string]json.RawMessage) { leg["cache_salt"] = json.RawMessage(`"other"`) }, "other_salts"},
		"no salt":          {func(leg map[string]json.RawMessage) { delete(leg, "cache_salt") }, "other_salts"},
	} {
		for _, believes := range []bool{false, true} {
			t.Run(name+", believes "+strconv.FormatBool(believes), func(t *testing.T) {
				t.Parallel()
				h := startRig(t, rigConfig{cfg: handing, flags: atOnce, replace: func(deps *server.Deps) {
					deps.Connector = respelling{deps.Connector, tc.change}
					if believes {
						legs := &believing{Legs: deps.Legs}
						deps.Legs, deps.Connector = legs, listening{deps.Connector, legs}
					}
				}})
				c := &listed{rig: h, id: "mutant", salt: "own"}
				for range 3 {
					c.prompt = append(c.prompt, manyIDs(len(c.prompt), 150)...)
					c.ask(t, tc.seen == "")
					h.settle(t)
				}
				h.stop()
				total := h.sum("")
				if tc.seen != "" && total[tc.seen] == 0 {
					t.Errorf("%s: got 0, want that it is seen", tc.seen)
				}
				if wrong := h.wrong(); (wrong > 0) != (tc.seen != "") {
					t.Errorf("wrong reads: got %d, with a mutant: %v", wrong, tc.seen != "")
				}
				// What the engine says of ids and their number is enough to see it in service, where no oracle is.
				doubted := strings.HasPrefix(name, "an id") || strings.HasSuffix(name, "id") || strings.HasPrefix(name, "the ids")
				if n := h.turns.count("ERROR prefill is quarantined until it is restarted"); (n > 0) != (doubted && !believes) {
					t.Errorf("prefill was barred %d times", n)
				}
			})
		}
	}
}

// manyIDs are ids of a prompt.
func manyIDs(from, n int) (ids []int) {
	for i := range n {
		ids = append(ids, 300+(7*(from+i))%1000)
	}
	return ids
}

// unrecognised has the program take a ticket for that of other blocks, whose state would stop its second taker.
func unrecognised(ticket *convcache.Ticket) { ticket.ID = convcache.NewTicketID() }

// leaving hands out copies: a ticket that was taken is there for the next one. It keeps notes of hand-backs only if told so.
func leaving(store convcache.Store, notes bool) convcache.Store {
	var mu sync.Mutex // guards tickets
	tickets := map[convcache.TicketID]convcache.Ticket{}
	return &tapped{Store: store, puts: func(ticket convcache.Ticket) bool {
		ticket.Params = bytes.Clone(ticket.Params)
		mu.Lock()
		defer mu.Unlock()
		if notes || !ticket.HandedBack() {
			tickets[ticket.ID] = ticket
		}
		return notes || !ticket.HandedBack()
	}, takes: func(id convcache.TicketID) (*convcache.Ticket, bool) {
		mu.Lock()
		defer mu.Unlock()
		ticket, has := tickets[id]
		unrecognised(&ticket)
		return &ticket, has
	}}
}

// A turn comes while its ticket is on its way to prefill.
func TestHandBackMutant_WithoutTheTakeTheOracleSeesIt(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, mutant bool) {
		h := startRig(t, rigConfig{cfg: handing, flags: atOnce, replace: func(deps *server.Deps) {
			if mutant {
				deps.Store = leaving(deps.Store, true)
			}
		}})
		(&listed{rig: h, id: "proves the pair"}).turn(t)
		h.settle(t)
		release := h.hold(vllmsim.HandBackRead)
		defer release()
		c := &listed{rig: h, id: "mutant"}
		c.turn(t)
		h.held(t)
		a := c.turn(t)
		if a.hit() != mutant {
			t.Errorf("X-KV-Reuse %q, with a mutant: %v", a.reuse(), mutant)
		}
		release()
		h.settle(t)
		h.stop()
		total := h.sum(config.RoleDecode)
		if wrong := h.wrong(); (wrong > 0) != mutant || (total["double_reads"] > 0) != mutant {
			t.Errorf("wrong reads: got %d, double reads %d, with a mutant: %v", wrong, total["double_reads"], mutant)
		}
	})
}

// A ticket that stays in the store when it was handed back names blocks that are gone, which only another prefill instance would read:
// the one that has taken them has nothing to read.
func TestHandBackMutant_TicketBesideItsNoteTheOracleSeesIt(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, mutant bool) {
		h := startRig(t, rigConfig{cfg: handing, prefills: 2, flags: append([]string{"--routing-prefill", "round_robin"}, atOnce...), replace: func(deps *server.Deps) {
			if mutant {
				deps.Store = leaving(deps.Store, false)
			}
		}})
		for range 2 { // both pairs are proven
			(&listed{rig: h, id: "proves pairs"}).turn(t)
			h.settle(t)
		}
		c := &listed{rig: h, id: "mutant"}
		for range 2 {
			c.turn(t)
			h.settle(t)
			h.free(t)
		}
		h.stop()
		if wrong := h.wrong(); (wrong > 0) != mutant {
			t.Errorf("wrong reads: got %d, with a mutant: %v", wrong, mutant)
		}
	})
}
