package explain

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// TicketAhead is one ticket of the conversation in the store.
type TicketAhead struct {
	Age      float64 `json:"age_s"`
	Deadline float64 `json:"deadline_s"` // seconds until it expires
	Tokens   int     `json:"tokens"`
	// Decode is the instance that holds the blocks, and State is its state. Current says whether the instance, when it was last probed, was
	// still the incarnation that made them.
	Decode  string `json:"decode"`
	State   string `json:"decode_state"`
	Current bool   `json:"decode_incarnation_current"`
	Pair    string `json:"pair,omitempty"` // state of the pair of the prefill instance that would be picked and this decode instance
	// Offered is how many tokens of the ticket the request may use; it is absent if only the ids of the prompt can tell. Usable says whether
	// the ticket could be used. If Offered is absent, Usable assumes that the prompt begins with all tokens of the ticket. Why is the reason
	// of the miss if the ticket is not usable.
	Offered *int   `json:"tokens_offered,omitempty"`
	Usable  bool   `json:"usable"`
	Why     string `json:"why,omitempty"`
	Hint    string `json:"hint,omitempty"` // the same in words
	// Differs and How say where the request's history differs from the ticket's. They are empty if the whole ticket is offered, or if
	// another replica has made it. If Offered is absent, they cover only the parts before the reply.
	Differs string `json:"differs,omitempty"`
	How     string `json:"how,omitempty"`
}

// EngineAhead is an instance that would be picked.
type EngineAhead struct {
	Instance    string `json:"instance"`
	State       string `json:"state"`
	Why         string `json:"why,omitempty"` // a sentence about the state
	Incarnation string `json:"incarnation,omitempty"`
	InFlight    int    `json:"in_flight"`
	BlockSize   int    `json:"block_size,omitempty"`
	UsesIDs     string `json:"uses_ids"`        // whether it computes the ids that it was sent: "yes", "no" or "unknown"
	PlugIn      string `json:"plug_in"`         // whether its params carry the ids of its answers
	Silent      bool   `json:"sends_no_params"` // decode only: its answers carry no kv_transfer_params, so nothing can be reused
}

func engineAhead(incarnation *fleet.Incarnation) *EngineAhead {
	engine := incarnation.Engine()
	live := engine.Live()
	return &EngineAhead{
		Instance: engine.Name, State: live.State, Why: live.Why, Incarnation: incarnation.ID(), InFlight: live.InFlight,
		BlockSize: incarnation.BlockSize(), UsesIDs: found(incarnation.Capability.UsesIDs(body.Chat)), PlugIn: found(incarnation.PlugIn.Found()), Silent: incarnation.Silence.Silent(),
	}
}

// found returns a finding in words for operators.
func found(f facts.Finding) string {
	switch f {
	case facts.Yes:
		return "yes"
	case facts.No:
		return "no"
	}
	return "unknown"
}

// finding returns the same as found, but "" for a finding that is not known or not needed.
func finding(f facts.Finding) string {
	if f == facts.Unknown {
		return ""
	}
	return found(f)
}

// listTickets describes the tickets of a turn's conversation, for the prefill instance that would read them, nil for none. compared says that
// it is known how much of each ticket the request may use.
func listTickets(
	ctx context.Context, engines *fleet.Fleet, of *reuse.Predictor, branches []convcache.KeyedBranch, prefill *fleet.Incarnation, compared bool,
) []TicketAhead {
	tickets := make([]TicketAhead, 0, len(branches))
	for _, b := range branches {
		now := time.Now()
		ticket := TicketAhead{
			Age: max(0, upstream.Elapsed(b.FreshAsOf, now).Seconds()), Deadline: max(0, b.Deadline.Sub(now).Seconds()),
			Tokens: b.Tokens, Decode: b.Decode.Instance, State: "gone",
		}
		offer := convcache.Offer{Tokens: b.Tokens, Whole: true}
		if compared {
			offer = of.Offer(b)
			ticket.Offered = &offer.Tokens
		}
		if engine := engines.Engine(upstream.RoleDecode, b.Decode.Instance); engine != nil {
			last := engine.Last()
			ticket.State, ticket.Current = engine.Live().State, last.Known() && last.ID() == b.Decode.Incarnation
			if prefill != nil {
				ticket.Pair = pairStatus(prefill.StatusWith(last))
			}
		}
		ticket.Why = string(of.Barrier(ctx, b, offer))
		ticket.Usable, ticket.Hint = ticket.Why == "", record.Hint(ticket.Why, "")
		if !compared || !offer.Whole {
			if d := of.Differs(b); compared || !d.Assumed {
				ticket.Differs, ticket.How = d.Position, d.How
			}
		}
		tickets = append(tickets, ticket)
	}
	return tickets
}
