package nixl

import (
	"errors"
	"fmt"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// A ticket is not handed back for these reasons.
var (
	errAmong    = errors.New("not measured with NixlConnector among other connectors")
	errNoTicket = errors.New("there is nothing to read")
	errGroups   = errors.New("ticket: has several block groups")
	errNotWhole = errors.New("ticket: must be read whole")
	errIDs      = errors.New("ids: must be a list of one for each token of the ticket")
)

// handBackMembers were measured on vLLM 0.32. The caller drops the connection at the first event, and prefill aborts the request. A
// request with one token or an early stop would end by itself, and keep prefill's blocks for their lease of 30 s although the caller
// dropped it. The first event has the ids of the prompt and its usage.
const handBackMembers = `,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":64,"ignore_eos":true,` +
	`"temperature":0,"return_token_ids":true`

// HandBack returns a text completion of exactly the ids that the ticket covers, with the whole ticket. Prefill reads the blocks that it
// lacks from the holder and files them in its prefix cache, and the holder frees its blocks. upstream.Client.HandBack sends the leg.
// Measured on vLLM 0.32: the blocks are free 0.02 to 0.15 s after the first event, also where prefill lacks less than
// kv_recompute_threshold and computes the rest instead.
//
// Other requests read what prefill has filed, so HandBack cuts and repairs nothing. It returns an error if Among is set; if the ticket
// can't be parsed, is not offered whole or is to be released; if it has several block groups, or another number of blocks than its
// tokens fill (checked if the offer has the block size); or if its ids are not one for each token. Prefill refuses a prompt that leaves
// no space for an answer with 400.
func (c Connector) HandBack(offer upstream.TicketOffer, model, salt string) (upstream.ReleaseLeg, error) {
	if c.Among {
		return upstream.ReleaseLeg{}, fmt.Errorf("hand-back: %w", errAmong)
	}
	params, err := wholeParams(offer)
	if err != nil {
		return upstream.ReleaseLeg{}, fmt.Errorf("hand-back: %w", err)
	}
	var quoted []byte
	if salt != "" {
		quoted = append([]byte(`,"cache_salt":`), rawjson.Quote(salt)...)
	}
	raw := fmt.Appendf(nil, `{"model":%s,"prompt":%s%s%s,"kv_transfer_params":%s}`, rawjson.Quote(model), offer.PromptIDs, handBackMembers, quoted, params)
	return upstream.ReleaseLeg{API: body.Text, Body: raw}, nil
}

// wholeParams makes prefill read all of the ticket. It adds no ids, because the leg's prompt is the ids.
func wholeParams(offer upstream.TicketOffer) ([]byte, error) {
	if offer.Ticket == nil || offer.Release {
		return nil, errNoTicket
	}
	p, err := readTicket(offer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ticket: %w", err)
	case p.groups != 1:
		return nil, errGroups
	case p.tokens != offer.Tokens:
		return nil, errNotWhole
	case p.misplaced(offer.BlockSize) != nil:
		return nil, p.misplaced(offer.BlockSize)
	case countIDs(offer.PromptIDs) != p.tokens:
		return nil, errIDs
	}
	offer.PromptIDs = nil
	return prefillParams(offer)
}

func countIDs(raw []byte) int {
	s := rawjson.Scanner{Data: raw}
	s.Space()
	if more, err := s.Open('['); !more || err != nil {
		return 0
	}
	if n, ok := s.CountInts(); ok && s.End() {
		return n
	}
	return 0
}
