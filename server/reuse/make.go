package reuse

import (
	"errors"

	"carryover/convcache"
	"carryover/server/answer"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Origin says where the KV of an answer comes from, and which leg brought the answer.
type Origin struct {
	*Proof                             // of the attempt
	Prefill, Decode *fleet.Incarnation // Prefill gave the hand-over, nil if there was none
	State           *pairs.State       // of the two, nil if one of them is unknown
	Epoch           int64              // of the legs
	Caches
}

// Listen begins to collect the ids of an answer for a ticket.
func (t *Tickets) Listen(o *Origin) *proof.IDs {
	if o.State != nil && !o.Conversation.Final {
		o.IDs.Retain(t.deps.Pins.Arena())
	}
	o.IDs.Grow(o.Decode.BlockSize())
	return o.IDs
}

// refuses returns why an answer leaves no ticket, "" if only decode's params can still rule it out.
func refuses(o *Origin, got *answer.Result) (why string) {
	switch {
	case !o.Conversation.Known && o.proof == nil:
		return record.ReasonNoConversation
	case o.Conversation.Final:
		return "final"
	case o.Ineligible != "":
		return "ineligible_" + o.Ineligible
	case o.Prefill == nil:
		return "no_handover"
	case o.Quarantined: // the hand-over comes from a quarantined prefill instance
		return record.ReasonQuarantined
	case o.State == nil:
		return proof.Unproven(proof.LacksIncarnation)
	case o.IDs.Unproven() != "":
		return o.IDs.Unproven()
	case got.Completeness == answer.Incomplete:
		return got.Completeness.Lacks()
	case got.Ineligible != "":
		return "ineligible_" + got.Ineligible
	case !got.Identified: // nothing shows that the answer belongs to this request
		return "ineligible_response_id"
	case got.Finish != "stop" && got.Finish != "length" && got.Finish != "tool_calls":
		return "ineligible_finish"
	case got.Params == nil && got.StopReason:
		return "ineligible_stop_string"
	case got.Params == nil:
		return record.ReasonNoParams
	}
	return got.Completeness.Lacks()
}

// ticketOf makes the ticket of an answer from decode's params, or returns why there is none. It records what the params show of decode.
func (t *Tickets) ticketOf(o *Origin, got *answer.Result) (ticket convcache.Ticket, why string) {
	if why = refuses(o, got); why == record.ReasonNoParams {
		t.sentNothing(o)
	}
	if why != "" {
		return ticket, why
	}
	ticket, parsed, err := t.deps.Pins.Received(got.Params, o.Decode, got.FreshAsOf)
	if err != nil && !errors.Is(err, upstream.ErrMisplaced) {
		t.cfg.Logger.Warn("decode's params can't be a ticket", "turn", o.turn, "decode", o.Decode.Engine().Name, "error", err)
	} else if !o.API.Rendered() { // answers of other APIs don't count, see sentNothing
		o.Decode.Silence.SentParams()
	}
	switch {
	case err != nil:
		return ticket, "ineligible_bad_params"
	case parsed.Groups != 1:
		// With several groups of blocks vLLM 0.32 can take a failed load for one that succeeded.
		return ticket, "ineligible_block_groups"
	case o.Epoch != t.deps.Epoch.Now():
		return ticket, record.ReasonQuarantined
	}
	ticket.Account, ticket.SharedPrefixTokens, ticket.Prefilled, ticket.Epoch = o.Account, o.Shared, o.Prefilled, o.Epoch
	ticket.Outline = o.outlines.Outline(ticket.ID, o.parts)
	ticket.Chain, why = o.proof.Seal(o.Decode, &parsed, got.Usage.Prompt, got.Usage.Completion)
	return ticket, why
}
