// Package nixl reads and writes kv_transfer_params for vLLM's NixlConnector in pull mode. It checks the few members that decide whether
// blocks may be read at all, and forwards all others bit for bit, because engines add their own.
//
// An engine's params are foreign text: their size is bounded (params.go), and an error names the wrong member without its value. Nothing is
// repaired: a ticket that can't be parsed, or can't be cut to the tokens that prefill may read (forward.go), is not used. Params are parsed
// once, in one pass (members.go), when they come; a ticket keeps the result beside its text. Params without a result are parsed again.
//
// A ticket that no turn uses can be handed back whole (handback.go). A hand-back leg writes into prefill's cache, which other requests
// read, so everything about it that can be checked is checked.
package nixl

import (
	"context"
	"fmt"
	"strings"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/connector"
)

// Connector is vLLM's NixlConnector in pull mode: prefill's answer names its blocks, and decode reads them. With bidirectional_kv_xfer
// decode's answer names its blocks too, and the next turn's prefill reads them (vLLM nixl/pull_scheduler.py).
type Connector struct {
	// Among says that the engines run NixlConnector within MultiConnector. Tickets are not handed back then: a hand-back writes into
	// prefill's cache, which other requests read, and was measured with NixlConnector alone.
	Among bool
}

// Traits says that tickets are worth keeping and, unless Among is set, can be handed back; and that turns of every API are moved: vLLM 0.32
// takes kv_transfer_params in requests of every API.
func (c Connector) Traits() upstream.Traits {
	return upstream.Traits{Reuses: true, HandsBack: !c.Among, Agents: true}
}

// Plan has prefill compute first, and decode read prefill's blocks. The error says why the ticket is malformed or can't be cut; nothing may
// be sent then.
func (Connector) Plan(_ context.Context, t upstream.Transfer) (upstream.Plan, error) {
	api := t.Request.API
	if !t.PrefillAPI().ForwardsIDs() {
		t.Offer.PromptIDs = nil // with this API the leg's prompt is the ids
	}
	params, err := prefillParams(t.Offer)
	if err != nil {
		return upstream.Plan{}, err
	}
	return upstream.Plan{
		Prefill: leg(t.PrefillAPI(), params),
		Handover: func(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
			return handOver(api, answer.Params, t.Prefill)
		},
	}, nil
}

func handOver(api body.API, answered []byte, from *upstream.Instance) (*upstream.Handover, error) {
	if answered == nil {
		return nil, nil
	}
	params, err := parseHandover(answered)
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	read := func(api body.API, ids []byte) upstream.LegPlan {
		return leg(api, params.forward(edit{Host: host(params, from), PromptIDs: ids}))
	}
	return &upstream.Handover{
		Cached: params.cached, EngineID: params.engineID,
		Leg: func(ids []byte) upstream.LegPlan {
			if !api.ForwardsIDs() {
				ids = nil // with this API the leg's prompt is the ids
			}
			return read(api, ids)
		},
		Rescue: func() []body.Member { return read(body.Text, nil).Members },
	}, nil
}

// releaseMembers ask for a stream, which the caller drops at the first event, and for more tokens than prefill computes before it notices
// the abort. A request that ends by itself keeps prefill's blocks for their lease and a core of prefill busy as long: prefill used 25 to 37
// s of CPU in the 35 s after a leg of one token, and 1.3 s after a leg with these members (measured on vLLM 0.32; none of eight legs of 16
// or 64 tokens left a lease). The abort of a text completion comes sooner than a chat's.
const releaseMembers = `,"prompt":"x","stream":true,"max_tokens":64,"ignore_eos":true,"temperature":0`

// wholeRelease is for engines that run NixlConnector among others: this leg ends by itself. Aborts between two transfers have ended such an
// engine's core (vLLM #43226).
const wholeRelease = `,"prompt":"x","max_tokens":1`

// Release returns the leg that makes the holder free a ticket's blocks. It is a text completion, which any model serves, and prefill reads
// nothing of the ticket.
func (c Connector) Release(offer upstream.TicketOffer, model string) (upstream.ReleaseLeg, error) {
	params, err := prefillParams(offer)
	if err != nil {
		return upstream.ReleaseLeg{}, err
	}
	members := releaseMembers
	if c.Among {
		members = wholeRelease
	}
	raw := fmt.Appendf(nil, `{"model":%s%s,"kv_transfer_params":%s}`, rawjson.Quote(model), members, params)
	return upstream.ReleaseLeg{API: body.Text, Body: raw, Whole: c.Among}, nil
}

func leg(api body.API, params []byte) upstream.LegPlan {
	return upstream.LegPlan{API: api, Members: []body.Member{{Name: "kv_transfer_params", Value: params}}}
}

func prefillParams(offer upstream.TicketOffer) ([]byte, error) {
	if offer.Ticket == nil {
		return []byte(connector.NullParams), nil
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

// readTicket parses a ticket only if this process has not done so, as for one of another replica, perhaps of another version.
func readTicket(offer upstream.TicketOffer) (*kvParams, error) {
	if known, ok := offer.Reading.(*kvParams); ok {
		if p := known.of(offer.Ticket); p != nil {
			return p, nil
		}
	}
	return parseTicket(offer.Ticket)
}

// ParseTicket makes a ticket of decode's final kv_transfer_params. blockSize is the size of its blocks in tokens, 0 if not known. The error
// says why the params can't be a ticket; with upstream.ErrMisplaced they still name blocks.
func (Connector) ParseTicket(final []byte, blockSize int) (upstream.TicketParams, error) {
	params, err := parseTicket(final)
	if err != nil {
		return upstream.TicketParams{}, fmt.Errorf("ticket: %w", err)
	}
	ids, _ := rawjson.ParseIDs(params.output) // Carryover's vLLM plug-in adds them
	parsed := upstream.TicketParams{
		Params: params.raw, Reading: params.withoutText(), Tokens: params.tokens, Groups: params.groups,
		Expires: params.expiry, EngineID: params.engineID, RequestID: params.requestID, Generation: params.generation, OutputIDs: ids,
	}
	if params.groups == 1 {
		err = params.misplaced(blockSize)
	}
	return parsed, err
}

// misplaced returns an error if the params name another number of blocks than the tokens fill, and the block size is known. Prefill takes
// the last blocks of the list for the last tokens (vLLM nixl/base_worker.py): one block more misplaces all blocks, one less ends the
// engine.
func (p *kvParams) misplaced(blockSize int) error {
	if blockSize < 1 || p.blocks == (p.tokens+blockSize-1)/blockSize {
		return nil
	}
	return fmt.Errorf("ticket: %w: %d for %d tokens in blocks of %d", upstream.ErrMisplaced, p.blocks, p.tokens, blockSize)
}

// host returns the remote_host to forward. With the policy "auto" (or "") it is the engine's, unless that is valid on the engine's own
// machine only: an empty name, localhost (vLLM's default, VLLM_NIXL_SIDE_CHANNEL_HOST) or a wildcard address. IPv6 addresses have no
// brackets, because vLLM's make_zmq_path adds them.
func host(params *kvParams, owner *upstream.Instance) string {
	if owner.KVHost == "auto" || owner.KVHost == "" {
		switch strings.ToLower(params.host) {
		case "", "localhost", "0.0.0.0", "::":
		default:
			return params.host
		}
	}
	return owner.PeerHost()
}
