package storage

import (
	"context"

	"carryover/upstream"
	"carryover/upstream/connector"
)

// Connector is LMCache with storage that prefill and decode share.
type Connector struct{ connector.NoTickets }

// Traits says that engines tokenise by themselves, that there are no tickets, and that requests of any API will do: nothing is added to
// them.
func (Connector) Traits() upstream.Traits { return upstream.Traits{Agents: true} }

// Plan has prefill compute the prompt first. Decode's request is the client's own, and any decode instance may get it.
func (Connector) Plan(_ context.Context, t upstream.Transfer) (upstream.Plan, error) {
	leg := upstream.LegPlan{API: t.Request.API()}
	return upstream.Plan{
		Prefill: leg,
		Handover: func(upstream.PrefillAnswer) (*upstream.Handover, error) {
			return &upstream.Handover{Cached: -1, Leg: func([]byte) upstream.LegPlan { return leg }}, nil
		},
	}, nil
}
