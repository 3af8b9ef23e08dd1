package server

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/outline"
	"carryover/server/proof"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// How much earlier than decode a ticket ends. Prefill still has to queue and to
// shake hands before it reads; with remote_blocks_expiry_time it declines blocks
// that are about to expire by itself (vLLM #47021), without it no engine does.
const (
	// MarginWithExpiry holds for engines that tell when the blocks expire. A decode
	// instance that keeps blocks for no longer leaves no ticket.
	MarginWithExpiry    = 30 * time.Second
	marginWithoutExpiry = 60 * time.Second

	// TicketSlack is what must be left of the margin when a leg that carries a ticket
	// ends: prefill may still be reading until it has heard of a cancelled leg. It
	// covers what an age may be wrong by (heldBack of package upstream).
	TicketSlack = 5 * time.Second

	// MaxReuseTrial is the most that such a leg may take: it has to end before decode
	// may free the blocks and keep other KV in them.
	MaxReuseTrial = MarginWithExpiry - TicketSlack
)

// ticketMaker makes tickets of answers, and keeps them.
type ticketMaker struct {
	cfg      *Config
	deps     *Deps
	releaser *releaser
	writer   *ticketWriter
	blocks   *blocks
	ledger   *ledger
	outlines *outline.Memory
	branches branches
	lineages *lineages

	handBacks *handBacks

	plugInless sync.Map // by the name of an engine, its start of which it was last said that streams of Messages bring no params
}

// keep puts the ticket that an answer leaves behind, or says why there is none and
// has its blocks released. It is called before the client can see the end of the
// answer, so that a next turn that follows at once, on any replica, finds it; and
// again on every exit, for answers that did not get so far. The first call counts.
func (k *ticketMaker) keep(ctx context.Context, t *turn, a *answer) {
	if a.concluded || a.foreign { // a foreign answer's blocks are another request's
		return
	}
	a.concluded = true
	d := a.decoding
	if a.completeness() != incomplete {
		d.link.ExchangedKV()
	}
	ticket, kept, why := k.ticketOf(t, a)
	if why != "" {
		t.record.Stored = why
		left := leftover{decode: d.start, model: t.model, freshAsOf: a.freshAsOf}
		if kept.Params != nil {
			k.releaser.unuseKept(kept, left)
		} else {
			k.releaser.unuseParams(a.params, left)
		}
		if t.conversation.final && a.completeness() != incomplete {
			k.giveUpBranches(ctx, t)
		}
		return
	}
	if !k.blocks.fresh(ticket.Decode, kept) {
		t.record.Stored = "duplicate"
		k.cfg.Logger.Error("two answers name the same blocks; the ticket of one is dropped", "turn", t.record.Turn, "decode", ticket.Decode)
		return
	}
	if t.ids.Learning() {
		learning, learnt := storeContext(ctx, k.cfg)
		t.ids.Learnt(learning)
		learnt()
	}
	if !t.conversation.known {
		k.keepOutside(t, a, ticket)
		return
	}
	bounded, cancel := storeContext(ctx, k.cfg)
	defer cancel()
	if outcome := k.put(bounded, t, ticket); outcome != convcache.Stored {
		t.record.Stored = outcome.String()
		return
	}
	if k.lineages.inDoubt(ticket.Lineage) { // since it was made
		t.record.Stored = proof.Unproven(lacksQuarantined)
		k.giveUp(bounded, t.conversation.key, ticket.ID, t.model)
		return
	}
	t.record.Stored = "yes"
	k.handBacks.stored(t, d, &ticket)
	k.outlines.Keep(t.conversation.key, ticket.ID, t.outline, a.traits.reply(a.finish))
	k.watchBranches(t, ticket)
}

// keepOutside has the ticket of a turn handed back that names no conversation, or released.
func (k *ticketMaker) keepOutside(t *turn, a *answer, ticket convcache.Ticket) {
	ticket.Params = bytes.Clone(ticket.Params) // they are a part of the answer, which would be kept with them
	t.record.Stored = storedOutside
	if !k.handBacks.outside(t, a, &ticket) {
		t.record.Stored = string(ReasonNoConversation)
		k.releaser.unuse(ticket, t.model)
	}
}

// storedOutside is said of an answer that leaves no ticket in the store, because its request names no conversation, and is handed back.
const storedOutside = "hand_back"

// put stores a ticket.
func (k *ticketMaker) put(ctx context.Context, t *turn, ticket convcache.Ticket) convcache.Outcome {
	step := t.record.step(StepPut)
	outcome := k.writer.put(ctx, t.conversation.key, ticket, t.model)
	step.ended(outcome == convcache.Stored)
	return outcome
}

// ticketOf makes the ticket of an answer, or returns the reason for which there is
// none.
func (k *ticketMaker) ticketOf(t *turn, a *answer) (_ convcache.Ticket, kept upstream.Kept, why string) {
	d := a.decoding
	if why = k.noTicket(t, a); why != "" {
		return convcache.Ticket{}, kept, why
	}
	decode := d.start.Engine()
	kept, err := k.deps.Connector.Keep(a.params, d.blockSize)
	misplaced := errors.Is(err, upstream.ErrMisplaced)
	if err != nil && !misplaced {
		k.cfg.Logger.Warn("decode's params can't be a ticket", "turn", t.record.Turn, "decode", decode.Name, "error", err)
		return convcache.Ticket{}, kept, "ineligible_bad_params"
	}
	if a.dialect == nil { // of the others nothing is counted, see sentNothing
		d.start.SentParams()
	}
	k.releaser.generations.outdated(decode.Name, d.start.ID(), &kept) // to be known of the tickets that there are
	switch {
	case misplaced:
		return convcache.Ticket{}, kept, "ineligible_block_count"
	case kept.Groups != 1 && !k.cfg.ReuseHybrid:
		// Where several groups of blocks are read, vLLM 0.32 takes a load that failed for one
		// that succeeded.
		return convcache.Ticket{}, kept, "ineligible_block_groups"
	}
	ticket := convcache.Ticket{
		ID: convcache.NewTicketID(), Decode: decode.Name, Incarnation: d.start.ID(), EngineID: kept.EngineID,
		Params: kept.Params, Reading: keptReading(kept), Tokens: kept.Tokens, Groups: kept.Groups, FreshAsOf: a.freshAsOf, SharedPrefixTokens: t.sharedPrefixTokens(),
		Deadline: deadline(k.cfg, decode, a.freshAsOf, kept.Expires), Lineage: k.lineages.leave(d.lineage, d.found),
		Prefilled: d.prefilled,
	}
	if k.lineages.inDoubt(ticket.Lineage) {
		return ticket, kept, proof.Unproven(lacksQuarantined)
	}
	why = t.proof.Seal(proof.Ending{
		Decode: d.start, Kept: kept, Finish: a.finish, StopReason: a.stopReason,
		PromptTokens: a.usage.prompt, CompletionTokens: a.usage.completion,
	}, &ticket)
	return ticket, kept, why
}

// noTicket says why an answer leaves no ticket, whatever decode's params are.
func (k *ticketMaker) noTicket(t *turn, a *answer) (why string) {
	d := a.decoding
	switch {
	case !t.conversation.known && t.proof == nil:
		return string(ReasonNoConversation)
	case t.conversation.final:
		return "final"
	case t.ineligible != "":
		return "ineligible_" + t.ineligible
	case !d.handed:
		return "no_handover"
	case d.quarantined:
		return proof.Unproven(lacksQuarantined)
	case d.link == nil:
		return proof.Unproven(proof.LacksStart)
	case t.ids.Lacks() != "":
		return proof.Unproven(t.ids.Lacks())
	case a.completeness() == incomplete:
		return incomplete.lacks()
	case a.ineligible != "":
		return "ineligible_" + a.ineligible
	case a.id == nil: // nothing shows that it is the answer to this request
		return "ineligible_response_id"
	case a.finish != "stop" && a.finish != "length" && a.finish != "tool_calls":
		return "ineligible_" + convcache.WhyFinish
	case a.params == nil && a.stopReason:
		return "ineligible_" + convcache.WhyStopString
	case a.params == nil:
		k.sentNothing(t, d.start)
		return string(ReasonNoParams)
	}
	return a.completeness().lacks()
}

// deadline is until when a ticket may be used. It counts from a moment at which decode
// had not finished, since decode's own clock has been running from the moment it did.
// It is a moment and no duration, so that a pause before it is applied costs the ticket
// that time.
func deadline(cfg *Config, decode *fleet.Engine, caughtUp time.Time, expires bool) time.Time {
	margin := marginWithoutExpiry
	if expires {
		margin = MarginWithExpiry
	}
	return caughtUp.Add(min(decode.Instance().KVTTL-margin, cfg.TTL))
}

// sentNothing records that a finished answer to a hand-over brought no
// params, which stock vLLM before 0.33 does in every stream (vLLM #40186). Where other APIs have none it says nothing of the start:
// a stream of Messages has none without the plug-in, a response none behind a stop string.
func (k *ticketMaker) sentNothing(t *turn, decode *fleet.Incarnation) {
	if t.api.Rendered() {
		if t.api == upstream.Messages && t.stream {
			k.lacksPlugIn(t, decode)
		}
		return
	}
	if decode.SentNothing() {
		k.warnNoParams(t, decode)
	}
}

// lacksPlugIn says, once for each start, that its streams of Messages bring no params.
func (k *ticketMaker) lacksPlugIn(t *turn, decode *fleet.Incarnation) {
	name, start := decode.Engine().Name, decode.ID()
	if last, _ := k.plugInless.Swap(name, start); last == start {
		return
	}
	k.warnNoParams(t, decode)
}
