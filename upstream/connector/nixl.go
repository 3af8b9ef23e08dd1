package connector

import (
	"fmt"

	"carryover/upstream"
)

// NIXL is vLLM's NixlConnector in pull mode: prefill answers with its blocks,
// decode reads them; with bidirectional_kv_xfer decode answers with its own, and
// the next turn's prefill reads those (vLLM nixl/pull_scheduler.py).
type NIXL struct{}

// PrefillParams returns the kv_transfer_params of a prefill leg. ticket is what
// decode answered at the end of the previous turn, nil without reuse, and holder
// the decode instance that answered it. The error says why a ticket is malformed;
// nothing may be sent then.
func (NIXL) PrefillParams(ticket []byte, holder *upstream.Instance) ([]byte, error) {
	if ticket == nil {
		return upstream.TemplateParams(), nil
	}
	params, err := upstream.ParseTicket(ticket)
	if err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	return forward(params, holder), nil
}

// DecodeParams returns the kv_transfer_params of the decode leg from prefill's
// answer, and how many prompt tokens prefill took from caches, its own and
// remote ones (remote_prefill_cached_tokens, vLLM 0.31), or -1 if it does not
// tell. The error says why the answer is no hand-over; decode gets none then.
func (NIXL) DecodeParams(answered []byte, from *upstream.Instance) (params []byte, cached int, err error) {
	handover, err := upstream.ParseHandover(answered)
	if err != nil {
		return nil, -1, fmt.Errorf("hand-over: %w", err)
	}
	return forward(handover, from), handover.PrefillCached(), nil
}

// Keep checks decode's final kv_transfer_params and returns how many tokens its
// blocks hold, and whether they carry remote_blocks_expiry_time, by which prefill
// declines blocks that have expired (vLLM #47021). The error says why they can't
// be a ticket.
func (NIXL) Keep(final []byte) (tokens int, expires bool, err error) {
	params, err := upstream.ParseTicket(final)
	if err != nil {
		return 0, false, fmt.Errorf("ticket: %w", err)
	}
	return params.Tokens(), params.Expires(), nil
}

func forward(params *upstream.Params, owner *upstream.Instance) []byte {
	return params.Forward(upstream.Edit{Host: upstream.ResolveHost(owner.KVHost, params.Host(), owner.Host())})
}
