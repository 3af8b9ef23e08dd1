// Package orchestrated speaks to backends whose connector answers with kv_transfer_params of its own, such as AWS Neuron's NxDI. It does
// what production-stack's disaggregated_prefill_orchestrated does: prefill gets the null template, and decode gets the params of its
// answer. Only remote_host becomes the prefill instance's host, because backends send a name of their own there, such as the address of a
// container.
//
// An earlier form of the same contract sends decode prefill's whole answer as disagg_prefill_resp instead.
//
// Nothing is kept for a next turn: whether a backend's params could be used again is not known.
package orchestrated

import (
	"context"
	"fmt"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/connector"
)

// Connector stands for any connector with which prefill's answer has kv_transfer_params and decode takes them.
type Connector struct {
	connector.NoTickets
	// Response sends decode prefill's whole answer as disagg_prefill_resp, instead of the answer's kv_transfer_params.
	Response bool
}

// Traits says that nothing is kept, and that requests of every API may carry kv_transfer_params, as in vLLM 0.32. disagg_prefill_resp is
// known to work on the completion endpoints only.
func (c Connector) Traits() upstream.Traits { return upstream.Traits{Agents: !c.Response} }

// Plan has prefill compute first, and decode read prefill's KV.
func (c Connector) Plan(_ context.Context, t upstream.Transfer) (upstream.Plan, error) {
	api, host := t.Request.API, t.Prefill.PeerHost()
	return upstream.Plan{
		Prefill: leg(api, "kv_transfer_params", []byte(connector.NullParams)),
		Handover: func(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
			if c.Response {
				return handover(api, "disagg_prefill_resp", answer.Body), nil
			}
			if answer.Params == nil { // the backend holds no KV; so does vLLM when the first token ends the answer
				return nil, nil
			}
			params, err := withHost(answer.Params, host)
			if err != nil {
				return nil, fmt.Errorf("hand-over: %w", err)
			}
			return handover(api, "kv_transfer_params", params), nil
		},
	}, nil
}

func handover(api body.API, name string, value []byte) *upstream.Handover {
	read := leg(api, name, value)
	return &upstream.Handover{
		Cached: -1,
		Leg:    func([]byte) upstream.LegPlan { return read },
		Rescue: func() []body.Member { return read.Members },
	}
}

func leg(api body.API, name string, value []byte) upstream.LegPlan {
	return upstream.LegPlan{API: api, Members: []body.Member{{Name: name, Value: value}}}
}

// withHost replaces remote_host in any JSON object. It neither changes nor keeps raw, and errors repeat nothing of it.
func withHost(raw []byte, host string) ([]byte, error) {
	params, err := connector.ParseParams(raw)
	if err != nil {
		return nil, err
	}
	var changes rawjson.Edits
	changes.Set("remote_host", rawjson.Quote(host))
	return params.Rewrite(changes), nil
}
