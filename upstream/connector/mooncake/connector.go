package mooncake

import (
	"crypto/rand"
	"errors"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/connector"
)

// Connector is vLLM's MooncakeConnector.
type Connector struct {
	connector.NoTickets
	// BootstrapPort is VLLM_MOONCAKE_BOOTSTRAP_PORT of prefill instances without a port of their own (upstream.Instance.KVPort).
	BootstrapPort int
}

// Traits says that legs carry ids, and that prefill instances are asked for their engine ids.
func (c Connector) Traits() upstream.Traits {
	return upstream.Traits{IDs: true, Introduce: c.introduce}
}

// Plan sends both legs at once, with a transfer id that no other attempt has: a second decode leg with the same id would wait until
// its time limit and fail (measured, 0.32). It returns an error if prefill's engine id is not known, or if the prompt has no ids.
func (c Connector) Plan(t upstream.Transfer) (upstream.Plan, error) {
	found, ok := t.OfPrefill.(*engines)
	if !ok {
		return upstream.Plan{}, errUnknownEngine
	}
	if len(t.PromptIDs) == 0 {
		return upstream.Plan{}, errNoIDs
	}
	engineID, rank, err := found.pick(t.Prefill)
	if err != nil {
		return upstream.Plan{}, err
	}
	transfer := rawjson.Quote("xfer-" + rand.Text())
	prompt := t.PromptIDs // so that Check holds only the ids until prefill has answered, and not the request
	api, ids := t.Request.API(), rawjson.AppendIDs(nil, prompt)

	prefill := newParams(true, transfer)
	decode := newParams(false, transfer)
	decode = connector.AppendMember(decode, "remote_engine_id", rawjson.Quote(engineID))
	decode = connector.AppendMember(decode, "remote_bootstrap_addr", rawjson.Quote(c.bootstrap(t.Prefill, t.Prefill.PeerHost())))
	decodeLeg := upstream.LegPlan{API: api, Members: connector.Carry(api, decode, ids)}
	return upstream.Plan{
		Order:   upstream.Together,
		Prefill: upstream.LegPlan{API: api, Rank: rank, Members: append(connector.Carry(api, prefill, ids), connector.Capped()...)},
		Handover: func(upstream.PrefillAnswer) (*upstream.Handover, error) {
			return &upstream.Handover{Cached: -1, Leg: func([]byte) upstream.LegPlan { return decodeLeg }}, nil
		},
		Check: func(answer upstream.PrefillAnswer) error { return check(answer, prompt) },
	}, nil
}

// newParams returns the beginning of kv_transfer_params. If one of these keys is missing, decode never answers, and it dies when the
// client leaves (measured, 0.32).
func newParams(prefill bool, transfer []byte) []byte {
	flags := `{"do_remote_decode":false,"do_remote_prefill":true`
	if prefill {
		flags = `{"do_remote_decode":true,"do_remote_prefill":false`
	}
	return connector.AppendMember([]byte(flags), "transfer_id", transfer)
}

var (
	errUnknownEngine = errors.New("mooncake: the engine id of the prefill instance is not known")
	errNoIDs         = errors.New("mooncake: the prompt has no ids")
)
