package p2pnccl

import (
	"strings"

	"carryover/upstream"
	"carryover/upstream/connector"
)

// whyNotRegistered says that an instance has not announced an address of this connector's form, so that no hand-over is possible.
const whyNotRegistered = "not_registered"

// Connector is vLLM's P2pNcclConnector, with send_type PUT or PUT_ASYNC.
type Connector struct{ connector.NoTickets }

// Traits says that decode engines serve nothing without a prefill engine.
func (Connector) Traits() upstream.Traits { return upstream.Traits{NeedsPrefill: true} }

// Plan has prefill compute and push the KV first. The connector sets only the request id, so decode gets the client's body.
func (Connector) Plan(t upstream.Transfer) (upstream.Plan, error) {
	if !registered(t.Prefill) || !registered(t.Decode) {
		return upstream.Plan{Order: upstream.DecodeAlone, Why: whyNotRegistered}, nil
	}
	leg := upstream.LegPlan{API: t.Request.API(), RequestID: connector.AddressedID(t)}
	return upstream.Plan{
		Order: upstream.PrefillFirst, Prefill: leg,
		Handover: func(upstream.PrefillAnswer) (*upstream.Handover, error) {
			return &upstream.Handover{
				Cached: -1, Bound: true, // the KV is in the memory of the decode engine that the id names
				Leg:     func([]byte) upstream.LegPlan { return leg },
				Rewrite: connector.Renamed{Request: leg.RequestID, Shown: t.RequestID},
			}, nil
		},
	}, nil
}

// registered reports whether an instance has announced an address of this connector's form, ip:port.
func registered(i *upstream.Instance) bool {
	return i.Announced.Address != "" && !strings.Contains(i.Announced.Address, ",")
}
