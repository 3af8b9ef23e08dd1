package nixl

import (
	"encoding/json"
	"fmt"

	"carryover/upstream"
)

// Connector is vLLM's NixlConnector in pull mode: prefill answers with its blocks,
// decode reads them; with bidirectional_kv_xfer decode answers with its own, and
// the next turn's prefill reads those (vLLM nixl/pull_scheduler.py).
type Connector struct {
	// Among says that engines run other connectors beside it, within MultiConnector. Tickets are not handed back then: what
	// that leaves in prefill's cache was measured with NixlConnector alone, and others read it.
	Among bool
}

// Traits says that tickets are worth making, that they can be handed back unless there are other connectors beside, that engines
// tokenise by themselves, and that turns of every API are moved: vLLM 0.32 takes kv_transfer_params on each of them.
func (c Connector) Traits() upstream.Traits {
	return upstream.Traits{Reuses: true, HandsBack: !c.Among, Agents: true}
}

// Plan has prefill compute first, and decode read what prefill holds. The error says why a ticket is
// malformed or can't be cut; nothing may be sent then.
func (Connector) Plan(t upstream.Transfer) (upstream.Plan, error) {
	api := t.Request.API()
	if !t.PrefillAPI().ForwardsIDs() {
		t.Offer.PromptIDs = nil // they are the prompt there
	}
	params, err := prefillParams(t.Offer)
	if err != nil {
		return upstream.Plan{}, err
	}
	return upstream.Plan{
		Order:   upstream.PrefillFirst,
		Prefill: leg(t.PrefillAPI(), params),
		Handover: func(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
			return handOver(api, answer.Params, t.Prefill)
		},
	}, nil
}

// handOver reads prefill's kv_transfer_params. None are no hand-over: the engine has nothing to read.
func handOver(api upstream.API, answered []byte, from *upstream.Instance) (*upstream.Handover, error) {
	if answered == nil {
		return nil, nil
	}
	params, err := parseHandover(answered)
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	return &upstream.Handover{
		Cached: params.prefillCached(), EngineID: params.engineID,
		Leg: func(ids []byte) upstream.LegPlan {
			if !api.ForwardsIDs() {
				ids = nil // they are the prompt there
			}
			return leg(api, params.forward(edit{Host: host(params, from), PromptIDs: ids}))
		},
	}, nil
}

// Release is a text completion of one token, which any model serves, with a ticket of which prefill reads nothing.
func (Connector) Release(offer upstream.TicketOffer, model string) (upstream.ReleaseLeg, error) {
	params, err := prefillParams(offer)
	if err != nil {
		return upstream.ReleaseLeg{}, err
	}
	body, err := json.Marshal(map[string]any{"model": model, "prompt": "x", "max_tokens": 1, "kv_transfer_params": json.RawMessage(params)})
	if err != nil {
		return upstream.ReleaseLeg{}, fmt.Errorf("release: %w", err)
	}
	return upstream.ReleaseLeg{API: upstream.Text, Body: body}, nil
}

// leg is a leg that carries params and nothing else that is not the client's.
func leg(api upstream.API, params []byte) upstream.LegPlan {
	return upstream.LegPlan{API: api, Members: []upstream.Member{{Name: "kv_transfer_params", Value: params}}}
}

// prefillParams returns the kv_transfer_params of a prefill leg: the null
// template without a ticket, else decode's answer of an earlier turn, cut to what
// may be read.
func prefillParams(offer upstream.TicketOffer) ([]byte, error) {
	if offer.Ticket == nil {
		return templateParams(), nil
	}
	params, err := readTicket(offer)
	if err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	if !offer.Release {
		if params, err = params.shorten(offer.Tokens, offer.BlockSize); err != nil {
			return nil, fmt.Errorf("ticket: %w", err)
		}
	}
	return params.forward(edit{Host: host(params, offer.Holder), Release: offer.Release, PromptIDs: offer.PromptIDs}), nil
}

// readTicket returns what this process has read of a ticket when it kept it. A ticket that comes without, as of another replica and
// perhaps another version, is read here.
func readTicket(offer upstream.TicketOffer) (*kvParams, error) {
	if known, ok := offer.Reading.(*kvParams); ok {
		if p := known.of(offer.Ticket); p != nil {
			return p, nil
		}
	}
	return parseTicket(offer.Ticket)
}

// Keep checks decode's final kv_transfer_params, whose blocks have that size in tokens, 0 if it is not known. The error
// says why they can't be a ticket; with upstream.ErrMisplaced they name blocks all the same.
func (Connector) Keep(final []byte, blockSize int) (upstream.Kept, error) {
	params, err := parseTicket(final)
	if err != nil {
		return upstream.Kept{}, fmt.Errorf("ticket: %w", err)
	}
	ids, _ := params.outputIDs()
	kept := upstream.Kept{
		Params: params.raw, Reading: params.withoutText(), Tokens: params.tokens, Groups: params.groups,
		Expires: params.expires(), EngineID: params.engineID, RequestID: params.requestID, Generation: params.generation, OutputIDs: ids,
	}
	if params.groups == 1 && blockSize > 0 && !params.fits(blockSize) {
		err = params.misplaced(blockSize)
	}
	return kept, err
}

// fits reports whether the blocks are as many as the tokens fill. Prefill takes the last blocks of the list for the last tokens (vLLM
// nixl/base_worker.py): one block more and all are misplaced, one less and the engine dies.
func (p *kvParams) fits(blockSize int) bool { return p.blocks == (p.tokens+blockSize-1)/blockSize }

// misplaced is the error of params that do not fit.
func (p *kvParams) misplaced(blockSize int) error {
	return fmt.Errorf("ticket: %w: %d for %d tokens in blocks of %d", upstream.ErrMisplaced, p.blocks, p.tokens, blockSize)
}

func host(params *kvParams, owner *upstream.Instance) string {
	return resolveHost(owner.KVHost, params.host, owner.Host())
}
