package connector

import (
	"fmt"

	"carryover/upstream"
)

// NIXL is vLLM's NixlConnector in pull mode: prefill answers with its blocks,
// decode reads them; with bidirectional_kv_xfer decode answers with its own, and
// the next turn's prefill reads those (vLLM nixl/pull_scheduler.py).
type NIXL struct{}

// PrefillParams returns the kv_transfer_params of a prefill leg: the null
// template without a ticket, else decode's answer of an earlier turn, cut to what
// may be read. The error says why a ticket is malformed or can't be cut; nothing
// may be sent then.
func (NIXL) PrefillParams(offer upstream.TicketOffer) ([]byte, error) {
	if offer.Ticket == nil {
		return upstream.TemplateParams(), nil
	}
	params, err := upstream.ParseTicket(offer.Ticket)
	if err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	if !offer.Release {
		if params, err = params.Shorten(offer.Tokens, offer.BlockSize); err != nil {
			return nil, fmt.Errorf("ticket: %w", err)
		}
	}
	return params.Forward(upstream.Edit{Host: host(params, offer.Holder), Release: offer.Release, PromptIDs: offer.PromptIDs}), nil
}

// DecodeParams returns the kv_transfer_params of the decode leg from prefill's
// answer, and how many prompt tokens prefill took from caches, its own and
// remote ones (remote_prefill_cached_tokens, vLLM 0.31), or -1 if it does not
// tell. The error says why the answer is no hand-over; decode gets none then.
func (NIXL) DecodeParams(answered, promptIDs []byte, from *upstream.Instance) (params []byte, cached int, err error) {
	handover, err := upstream.ParseHandover(answered)
	if err != nil {
		return nil, -1, fmt.Errorf("hand-over: %w", err)
	}
	return handover.Forward(upstream.Edit{Host: host(handover, from), PromptIDs: promptIDs}), handover.PrefillCached(), nil
}

// Keep checks decode's final kv_transfer_params. The error says why they can't be
// a ticket.
func (NIXL) Keep(final []byte) (upstream.Kept, error) {
	params, err := upstream.ParseTicket(final)
	if err != nil {
		return upstream.Kept{}, fmt.Errorf("ticket: %w", err)
	}
	ids, _ := params.OutputIDs()
	return upstream.Kept{
		Params: params.Forward(upstream.Edit{}), Tokens: params.Tokens(), Blocks: params.Blocks(), Groups: params.Groups(),
		Expires: params.Expires(), EngineID: params.EngineID(), RequestID: params.RequestID(), OutputIDs: ids,
	}, nil
}

func host(params *upstream.Params, owner *upstream.Instance) string {
	return upstream.ResolveHost(owner.KVHost, params.Host(), owner.Host())
}
