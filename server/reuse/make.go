package reuse

import (
	"errors"
	"time"

	"carryover/convcache"
	"carryover/server/answer"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Origin says where the KV of an answer comes from, and which leg has brought it.
type Origin struct {
	*Proof                             // of the attempt
	Prefill, Decode *fleet.Incarnation // Prefill gave the hand-over, nil if there was none
	State           *pairs.State       // of the two, nil if one of them is not known
	Began           time.Time          // when the leg to decode was sent
	BlockSize       int                // decode's block size by then
	Epoch           int64              // of the legs
	Caches
}

// Listen begins to collect the ids of an answer for a ticket.
func (o *Origin) Listen() *proof.IDs {
	if o.State != nil {
		o.IDs.Retain(o.arena)
	}
	o.IDs.Grow(o.BlockSize)
	return o.IDs
}

// refuses returns the reason why an answer leaves no ticket, "" if nothing but decode's params can rule it out.
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
	case o.Quarantined: // the hand-over comes from such a prefill instance
		return record.ReasonQuarantined
	case o.State == nil:
		return proof.Unproven(proof.LacksIncarnation)
	case o.IDs.Lacks() != "":
		return proof.Unproven(o.IDs.Lacks())
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

// makeTicket makes the ticket of an answer from decode's params, whose reading has failed with err if it has; or it returns the reason why
// there is none. epoch is that of the fleet now.
func makeTicket(o *Origin, got *answer.Result, parsed *upstream.TicketParams, err error, ttl time.Duration, epoch int64) (_ convcache.Ticket, why string) {
	switch {
	case err != nil:
		return convcache.Ticket{}, "ineligible_bad_params"
	case parsed.Groups != 1:
		// With several groups of blocks vLLM 0.32 can take a failed load for one that succeeded.
		return convcache.Ticket{}, "ineligible_block_groups"
	case o.Epoch != epoch:
		return convcache.Ticket{}, record.ReasonQuarantined
	}
	id := pins.Name(o.Decode.Engine().Name, parsed)
	ticket := convcache.Ticket{
		Branch: convcache.Branch{
			ID: id, Outline: o.outline.of(id), Decode: holderOf(o.Decode),
			Tokens: parsed.Tokens, SharedPrefixTokens: o.Shared,
			Epoch: o.Epoch, Prefilled: o.Prefilled,
			FreshAsOf: got.FreshAsOf, Deadline: pins.Deadline(ttl, o.Decode.Engine(), got.FreshAsOf, parsed.Expires),
		},
		Params: parsed.Params, Reading: pins.ReadingOf(*parsed), EngineID: parsed.EngineID,
	}
	why = o.proof.Seal(proof.Ending{
		Decode: o.Decode, Params: *parsed, PromptTokens: got.Usage.Prompt, CompletionTokens: got.Usage.Completion,
	}, &ticket)
	return ticket, why
}

// ticketOf makes the ticket of an answer, or returns the reason why there is none. It notes what decode's params show of decode.
func (t *Tickets) ticketOf(o *Origin, got *answer.Result) (ticket convcache.Ticket, why string) {
	if why = refuses(o, got); why == record.ReasonNoParams {
		t.sentNothing(o)
	}
	if why != "" {
		return ticket, why
	}
	parsed, err := t.deps.Connector.ParseTicket(got.Params, o.BlockSize)
	if err != nil && !errors.Is(err, upstream.ErrMisplaced) {
		t.cfg.Logger.Warn("decode's params can't be a ticket", "turn", o.turn, "decode", o.Decode.Engine().Name, "error", err)
	} else {
		if !o.API.Rendered() { // of the others nothing is counted, see sentNothing
			o.Decode.Silence.SentParams()
		}
		t.deps.Pins.Registered(o.Decode.Engine().Name, &parsed)
	}
	return makeTicket(o, got, &parsed, err, t.cfg.TTL, t.deps.Epoch.Now())
}
