// Package storage runs turns where prefill and decode share LMCache's storage (remote_url, for example fs:// or Redis, or one LMCache
// server for both). Prefill stores the KV of a prompt there, and decode finds it by the hashes of its ids. Both legs are the client's own
// request; there are no kv_transfer_params and no notifications. Decode computes KV that is missing or not stored yet. Measured with
// LMCache 0.5.6 and vLLM 0.32: decode loads all whole chunks of the prompt; if prefill is dead, it loads the chunks that are stored.
//
// Carryover can't tell whether decode found anything, and for a next turn only the storage remains. cache_salt does not separate tenants,
// because LMCache's keys do not contain it (measured). vLLM's ExampleConnector can't be used here: decode's engine ends if it sees a
// folder before its file, or if prefill needed several steps for the prompt (measured).
package storage

import (
	"context"

	"carryover/upstream"
	"carryover/upstream/connector"
)

// Connector is LMCache with storage that prefill and decode share.
type Connector struct{ connector.NoTickets }

// Traits says that there are no tickets, and that requests of any API will do: nothing is added to them.
func (Connector) Traits() upstream.Traits { return upstream.Traits{Agents: true} }

// Plan has prefill compute the prompt first. Decode's request is the client's own, and any decode instance may get it.
func (Connector) Plan(_ context.Context, t upstream.Transfer) (upstream.Plan, error) {
	leg := upstream.LegPlan{API: t.Request.API}
	return upstream.Plan{
		Prefill: leg,
		Handover: func(upstream.PrefillAnswer) (*upstream.Handover, error) {
			return &upstream.Handover{Cached: -1, Leg: func([]byte) upstream.LegPlan { return leg }}, nil
		},
	}, nil
}
