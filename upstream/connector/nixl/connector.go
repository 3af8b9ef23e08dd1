package nixl

import (
	"fmt"

	"carryover/sse/rawjson"
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

// releaseMembers are what each release leg asks for: a stream that its caller drops at the first event, with more tokens than prefill
// computes until it has heard of that. A request that ends by itself keeps prefill's blocks for its lease, dropped or not, and a core of
// prefill busy for as long: 25 to 37 s of CPU in the 35 s after a leg of one token, 1.3 s after one of these (measured on vLLM 0.32; of 16
// or 64 tokens none of eight left a lease). Of a text completion the abort comes sooner than of a chat.
const releaseMembers = `,"prompt":"x","stream":true,"max_tokens":64,"ignore_eos":true,"temperature":0`

// wholeRelease is the release leg for engines that run other connectors beside: it ends by itself. Requests that are aborted between two
// transfers have ended the engine core there (vLLM #43226).
const wholeRelease = `,"prompt":"x","max_tokens":1`

// Release is a text completion, which any model serves, with a ticket of which prefill reads nothing.
func (c Connector) Release(offer upstream.TicketOffer, model string) (upstream.ReleaseLeg, error) {
	params, err := prefillParams(offer)
	if err != nil {
		return upstream.ReleaseLeg{}, err
	}
	members := releaseMembers
	if c.Among {
		members = wholeRelease
	}
	name := rawjson.Quote(model)
	size := len(`{"model":,"kv_transfer_params":}`) + len(name) + len(members) + len(params)
	body := append(append(make([]byte, 0, size), `{"model":`...), name...)
	body = append(append(body, members...), `,"kv_transfer_params":`...)
	return upstream.ReleaseLeg{API: upstream.Text, Body: append(append(body, params...), '}'), Whole: c.Among}, nil
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
