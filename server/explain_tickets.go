package server

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// TicketAhead is one ticket of the conversation, as the store has it.
type TicketAhead struct {
	Age      float64 `json:"age_s"`
	Deadline float64 `json:"deadline_s"` // until it may not be used any more
	Tokens   int     `json:"tokens"`
	// Decode is the instance that holds the blocks; State, its state; Current, whether it is still in the start that made them, as
	// far as was read last.
	Decode  string `json:"decode"`
	State   string `json:"decode_state"`
	Current bool   `json:"decode_start_current"`
	Link    string `json:"link,omitempty"` // of the prefill instance that would be picked with that one
	// Offered is how many of its tokens the request may use, absent where only the ids of the prompt can tell. Usable says whether
	// it could be used, of one whose Offered is absent: if all its tokens were the prompt's; Why, the reason of the miss if not.
	Offered *int   `json:"tokens_offered,omitempty"`
	Usable  bool   `json:"usable"`
	Why     string `json:"why,omitempty"`
	// Differs and How say where the history differs from that of the ticket, empty where it need not: the whole ticket is offered, or
	// another replica has made it. Where Offered is absent they are of the parts before the reply.
	Differs string `json:"differs,omitempty"`
	How     string `json:"how,omitempty"`
}

// EngineAhead is an instance that would be picked.
type EngineAhead struct {
	Instance  string `json:"instance"`
	State     string `json:"state"`
	Why       string `json:"why,omitempty"` // a sentence about the state
	Start     string `json:"start,omitempty"`
	InFlight  int    `json:"in_flight"`
	BlockSize int    `json:"block_size,omitempty"`
	UsesIDs   string `json:"uses_ids"`        // whether it computes the ids that it is sent: "yes", "no" or "unknown"
	PlugIn    string `json:"plug_in"`         // whether its params carry the ids of its answers
	Silent    bool   `json:"sends_no_params"` // of decode: its answers bring no kv_transfer_params, so that nothing can be reused
}

func engineAhead(incarnation *fleet.Incarnation) *EngineAhead {
	engine := incarnation.Engine()
	live := engine.Live()
	return &EngineAhead{
		Instance: engine.Name, State: live.State, Why: live.Why, Start: incarnation.ID(), InFlight: live.InFlight,
		BlockSize: incarnation.BlockSize(), UsesIDs: found(incarnation.UsesIDs(upstream.Chat)), PlugIn: found(incarnation.PlugIn()), Silent: incarnation.Silent(),
	}
}

// found is how an operator reads a finding.
func found(f fleet.Finding) string {
	switch f {
	case fleet.Yes:
		return "yes"
	case fleet.No:
		return "no"
	}
	return "unknown"
}

// finding is found, and "" for what is not known or not needed.
func finding(f fleet.Finding) string {
	if f == fleet.Unknown {
		return ""
	}
	return found(f)
}

// listTickets describes the tickets of the conversation, for a pair or for none. compared says that it is known how much of each the
// request may use.
func (f *finder) listTickets(ctx context.Context, t *turn, p *pair, compared bool, x *Explanation) {
	for _, b := range t.branches {
		now := time.Now()
		ticket := TicketAhead{
			Age: max(0, upstream.Elapsed(b.FreshAsOf, now).Seconds()), Deadline: max(0, b.Deadline.Sub(now).Seconds()),
			Tokens: b.Tokens, Decode: b.Decode, State: "gone",
		}
		c := choice{branch: b, offer: convcache.Offer{Tokens: b.Tokens, Whole: true}}
		if compared {
			c.offer = t.proof.Offer(b)
			ticket.Offered = &c.offer.Tokens
		}
		if engine := f.deps.Fleet.Engine(upstream.RoleDecode, b.Decode); engine != nil {
			last := engine.Last()
			ticket.State, ticket.Current = engine.Live().State, last.Known() && last.ID() == b.Incarnation
			if p != nil && p.prefill != nil {
				ticket.Link = pairStatus(p.prefill.StatusWith(last))
			}
		}
		ticket.Why = string(f.barrier(ctx, t, p, c))
		ticket.Usable = ticket.Why == ""
		if !compared || !c.offer.Whole {
			if d := f.outlines.Compare(t.conversation.key, b.ID, t.outline); compared || !d.Assumed {
				ticket.Differs, ticket.How = d.Position, d.How
			}
		}
		x.Tickets = append(x.Tickets, ticket)
	}
}

// barrier says why a turn on this pair could not use a ticket, "" if it could.
func (f *finder) barrier(ctx context.Context, t *turn, p *pair, c choice) Reason {
	if p == nil {
		return ReasonBypass
	}
	if why := t.excludes(p); why != "" {
		return why
	}
	if c.offer.Tokens == 0 {
		return ReasonRewritten
	}
	_, why := f.usable(ctx, p, c)
	return why
}
