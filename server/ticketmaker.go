package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"

	"carryover/convcache"
	"carryover/server/answer"
	"carryover/server/background"
	"carryover/server/outline"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/quarantine"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// ticketMaker makes the tickets of answers, and stores them.
type ticketMaker struct {
	cfg        *Config
	deps       *Deps
	pins       *pins.Pins
	background *background.Group
	outlines   *outline.Memory
	lineages   *quarantine.Lineages
	plugInless sync.Map // engine name -> the incarnation for which the log last said that streams of Messages bring no params
}

// keep stores the ticket that an answer leaves. If there is none, it records the reason and has the answer's blocks released. It is called
// before the client can see the end of the answer, so that a turn that follows at once, on any replica, finds the ticket; or on the exit of
// an answer that did not get that far.
func (k *ticketMaker) keep(ctx context.Context, t *turn, d *decoding, a answer.Result) {
	if a.Completeness != answer.Incomplete {
		d.pairState.ExchangedKV()
	}
	ticket, parsed, why := k.ticketOf(t, d, &a)
	if why != "" {
		t.record.Stored(why)
		left := pins.Leftover{Decode: d.leg.Incarnation, Model: t.Model, Began: d.began, FreshAsOf: a.FreshAsOf}
		if parsed.Params != nil {
			k.pins.Releases.UnuseParsed(parsed, left)
		} else {
			k.pins.Releases.UnuseParams(a.Params, left)
		}
		if t.Conversation.Final && a.Completeness != answer.Incomplete {
			k.giveUpBranches(ctx, t.Conversation.Key, t.branches, t.Model)
		}
		return
	}
	if !k.pins.Fresh(ticket.Decode.Instance, parsed) {
		t.record.Stored("duplicate")
		k.cfg.Logger.Error("two answers name the same blocks; the ticket of one is dropped", "turn", t.record.ID(), "decode", ticket.Decode.Instance)
		return
	}
	if t.ids.Learning() {
		learning, learnt := storetime.Limit(ctx, k.cfg.StoreTimeout)
		t.ids.Learnt(learning)
		learnt()
	}
	if !t.Conversation.Known {
		k.keepOutside(t, d, &a, ticket)
		return
	}
	bounded, cancel := storetime.Limit(ctx, k.cfg.StoreTimeout)
	defer cancel()
	if outcome := k.put(bounded, t, ticket); outcome != convcache.Stored {
		t.record.Stored(outcome.String())
		return
	}
	if k.lineages.InDoubt(ticket.Lineage) { // after the ticket had been made
		t.record.Stored(proof.Unproven(lacksQuarantined))
		k.pins.GiveUp(bounded, t.Conversation.Key, ticket.ID, t.Model)
		return
	}
	t.record.Stored("yes")
	k.pins.HandBacks.Stored(answered(t, d, &a), &ticket)
	k.outlines.Keep(t.Conversation.Key, ticket.ID, t.outline, a.Outline)
	k.pins.WatchBranches(t.Conversation.Key, t.Model, t.branches, &ticket)
}

// keepOutside hands back the ticket of a turn that names no conversation, or else releases it.
func (k *ticketMaker) keepOutside(t *turn, d *decoding, a *answer.Result, ticket convcache.Ticket) {
	ticket.Params = bytes.Clone(ticket.Params) // they are a part of the answer, which would be kept with them
	t.record.Stored(storedOutside)
	if !k.pins.HandBacks.Outside(answered(t, d, a), &ticket) {
		t.record.Stored(string(record.ReasonNoConversation))
		k.pins.Releases.Unuse(ticket, t.Model)
	}
}

// answered is what a hand-back needs to know of the turn and its answer.
func answered(t *turn, d *decoding, a *answer.Result) pins.Answer {
	return pins.Answer{
		Prefill: d.from, Decode: d.leg.Incarnation, IDs: t.ids, Model: t.Model, Salt: cmp.Or(t.TenantSalt, t.clientSalt), Conversation: t.record.Asked().Conversation,
		Key: t.Conversation.Key, Affinity: t.Conversation.Affinity, PromptTokens: a.Usage.Prompt,
	}
}

// giveUpBranches takes all tickets that the last turn of a conversation saw. It is called only if that turn succeeded, because a failed one is
// sent again and may use them.
func (k *ticketMaker) giveUpBranches(ctx context.Context, key convcache.Key, branches []convcache.Branch, model string) {
	bounded, cancel := storetime.Limit(ctx, k.cfg.StoreTimeout)
	defer cancel()
	for _, b := range branches {
		k.pins.GiveUp(bounded, key, b.ID, model)
	}
}

// storedOutside is recorded for an answer that is handed back without being stored, because its request names no conversation.
const storedOutside = "hand_back"

// put stores a ticket.
func (k *ticketMaker) put(ctx context.Context, t *turn, ticket convcache.Ticket) convcache.Outcome {
	step := t.record.Step(record.StepPut)
	outcome := k.pins.Put(ctx, t.Conversation.Key, ticket, t.Model)
	step.Ended(outcome == convcache.Stored)
	return outcome
}

// ticketOf makes the ticket of an answer, or returns the reason why there is none.
func (k *ticketMaker) ticketOf(t *turn, d *decoding, a *answer.Result) (_ convcache.Ticket, parsed upstream.TicketParams, why string) {
	if why = k.noTicket(t, d, a); why != "" {
		return convcache.Ticket{}, parsed, why
	}
	decode := d.leg.Incarnation.Engine()
	parsed, err := k.deps.Connector.ParseTicket(a.Params, d.blockSize)
	misplaced := errors.Is(err, upstream.ErrMisplaced)
	if err != nil && !misplaced {
		k.cfg.Logger.Warn("decode's params can't be a ticket", "turn", t.record.ID(), "decode", decode.Name, "error", err)
		return convcache.Ticket{}, parsed, "ineligible_bad_params"
	}
	if !t.API.Rendered() { // of the others nothing is counted, see sentNothing
		d.leg.Incarnation.Silence.SentParams()
	}
	k.pins.Releases.NoteGeneration(d.leg.Incarnation, &parsed, d.began)
	switch {
	case misplaced:
		return convcache.Ticket{}, parsed, "ineligible_block_count"
	case parsed.Groups != 1 && !k.cfg.ReuseHybrid:
		// With several groups of blocks vLLM 0.32 can take a failed load for one that succeeded.
		return convcache.Ticket{}, parsed, "ineligible_block_groups"
	}
	ticket := convcache.Ticket{
		Branch: convcache.Branch{
			ID: convcache.NewTicketID(), Decode: convcache.Holder{Instance: decode.Name, Incarnation: d.leg.Incarnation.ID()},
			Tokens: parsed.Tokens, Groups: parsed.Groups, SharedPrefixTokens: t.sharedPrefixTokens(), Lineage: k.lineages.Leave(d.lineage, d.found), Prefilled: d.prefilled,
			FreshAsOf: a.FreshAsOf, Deadline: pins.Deadline(k.cfg.TTL, decode, a.FreshAsOf, parsed.Expires),
		},
		Params: parsed.Params, Reading: pins.ReadingOf(parsed), EngineID: parsed.EngineID,
	}
	if k.lineages.InDoubt(ticket.Lineage) {
		return ticket, parsed, proof.Unproven(lacksQuarantined)
	}
	why = t.proof.Seal(proof.Ending{
		Decode: d.leg.Incarnation, Params: parsed, Finish: a.Finish, StopReason: a.StopReason,
		PromptTokens: a.Usage.Prompt, CompletionTokens: a.Usage.Completion,
	}, &ticket)
	return ticket, parsed, why
}

// noTicket returns the reason why an answer leaves no ticket, "" if nothing but decode's params can rule it out.
func (k *ticketMaker) noTicket(t *turn, d *decoding, a *answer.Result) (why string) {
	switch {
	case !t.Conversation.Known && t.proof == nil:
		return string(record.ReasonNoConversation)
	case t.Conversation.Final:
		return "final"
	case t.ineligible != "":
		return "ineligible_" + t.ineligible
	case !d.handed:
		return "no_handover"
	case d.quarantined:
		return proof.Unproven(lacksQuarantined)
	case d.pairState == nil:
		return proof.Unproven(proof.LacksIncarnation)
	case t.ids.Lacks() != "":
		return proof.Unproven(t.ids.Lacks())
	case a.Completeness == answer.Incomplete:
		return a.Completeness.Lacks()
	case a.Ineligible != "":
		return "ineligible_" + a.Ineligible
	case !a.Identified: // nothing shows that the answer belongs to this request
		return "ineligible_response_id"
	case a.Finish != "stop" && a.Finish != "length" && a.Finish != "tool_calls":
		return "ineligible_" + convcache.WhyFinish
	case a.Params == nil && a.StopReason:
		return "ineligible_" + convcache.WhyStopString
	case a.Params == nil:
		k.sentNothing(t, d.leg.Incarnation)
		return string(record.ReasonNoParams)
	}
	return a.Completeness.Lacks()
}

// sentNothing records that a finished answer to a hand-over brought no params. Every stream of stock vLLM before 0.33 is such an answer
// (vLLM #40186). Answers of other APIs say nothing about the incarnation: a stream of Messages has no params without the plug-in, and a
// response has none behind a stop string.
func (k *ticketMaker) sentNothing(t *turn, decode *fleet.Incarnation) {
	if t.API.Rendered() {
		if t.API == body.Messages && t.Stream {
			k.lacksPlugIn(t, decode)
		}
		return
	}
	if decode.Silence.SentNothing() {
		k.warnNoParams(t, decode)
	}
}

// lacksPlugIn warns, once for each incarnation, that its streams of Messages bring no params.
func (k *ticketMaker) lacksPlugIn(t *turn, decode *fleet.Incarnation) {
	name, incarnation := decode.Engine().Name, decode.ID()
	if last, _ := k.plugInless.Swap(name, incarnation); last == incarnation {
		return
	}
	k.warnNoParams(t, decode)
}
