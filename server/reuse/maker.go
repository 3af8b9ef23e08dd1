package reuse

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/answer"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Maker makes the tickets of answers, and stores them. It is safe for concurrent use.
type Maker struct {
	cfg        *Config
	deps       *Deps
	plugInless sync.Map // engine name -> the incarnation for which the log last said that streams of Messages bring no params
}

// Origin says where the KV of an answer comes from, and which leg has brought it.
type Origin struct {
	Prefill, Decode *fleet.Incarnation    // Prefill gave the hand-over, nil if there was none
	Pair            *pairs.State          // of the two, nil if one of them is not known
	Began           time.Time             // when the leg to decode was sent
	BlockSize       int                   // decode's block size by then
	Epoch           int64                 // of the legs
	Prefilled       []convcache.Prefilled // how many tokens of the prompt prefill's caches hold
}

// HandedOver reports whether decode got a hand-over.
func (o *Origin) HandedOver() bool { return o.Prefill != nil }

// Keep stores the ticket that an answer leaves. If there is none, it records the reason and has the answer's blocks released. It is called
// before the client can see the end of the answer, so that a turn that follows at once, on any replica, finds the ticket; or on the exit of
// an answer that did not get that far.
func (m *Maker) Keep(ctx context.Context, p *Proving, looked *Lookup, of *Origin, a answer.Result) {
	if a.Completeness != answer.Incomplete {
		of.Pair.ExchangedKV()
	}
	m.learn(p, &a)
	ticket, parsed, why := m.ticketOf(p, looked, of, &a)
	if why != "" {
		p.record.Stored(why)
		left := pins.Leftover{Decode: of.Decode, Model: p.request.Model, FreshAsOf: a.FreshAsOf}
		if parsed.Params != nil {
			m.deps.Pins.UnuseParsed(parsed, left)
		} else {
			m.deps.Pins.UnuseParams(a.Params, left)
		}
		if p.request.Conversation.Final && !looked.byContent && a.Completeness != answer.Incomplete {
			m.giveUpBranches(ctx, looked.Branches, p.request.Model)
		}
		return
	}
	home := convcache.Key{}
	if p.request.Conversation.Known {
		home = looked.home(&p.request.Conversation)
	}
	to := answered(p, of, &a, home)
	if !m.deps.Pins.Answered(to, &ticket) {
		p.record.Stored("duplicate")
		m.cfg.Logger.Error("two answers name the same blocks; the ticket of one is dropped", "turn", p.record.ID(), "decode", ticket.Decode.Instance)
		return
	}
	if p.IDs.Learning() {
		learning, learnt := storetime.Limit(ctx, m.cfg.StoreTimeout)
		p.IDs.Learnt(learning)
		learnt()
	}
	if !p.request.Conversation.Known {
		ticket.Params = bytes.Clone(ticket.Params) // they are a part of the answer, which would be kept with them
		p.record.Stored(StoredOutside)
		if !m.deps.Pins.HandBack(ticket, a.Usage.Prompt, p.request.Model) {
			p.record.Stored(string(record.ReasonNoConversation))
		}
		return
	}
	if m.choose(p, to, &ticket) {
		return
	}
	bounded, cancel := storetime.Limit(ctx, m.cfg.StoreTimeout)
	defer cancel()
	aliased := m.alias(bounded, p, looked, home)
	outcome := p.put(bounded, m.deps.Pins, home, ticket)
	aliased()
	if outcome != convcache.Stored {
		p.record.Stored(outcome.String())
		return
	}
	if ticket.Epoch != m.deps.Epoch.Now() { // since the ticket was made
		p.record.Stored(string(record.ReasonQuarantined))
		m.deps.Pins.GiveUp(bounded, home, ticket.ID, p.request.Model)
		return
	}
	p.record.Stored("yes")
	m.giveUpBranches(bounded, looked.outdatedBy(&ticket, home), p.request.Model)
	if !looked.byContent && !looked.foreign { // else they may be of other conversations that began alike
		m.deps.Pins.WatchBranches(p.request.Model, looked.Branches, &ticket)
	}
}

// alias lets the next turn find the conversation by content if it has another id, and forgets the aliases by which this turn has found a
// ticket. It returns a function that waits for the new alias.
func (m *Maker) alias(ctx context.Context, p *Proving, looked *Lookup, home convcache.Key) (wait func()) {
	var group sync.WaitGroup
	background, beside := m.deps.Background, group.Go
	if m.cfg.StoreTimeout == 0 { // the store is in this process, and does not wait
		background, beside = func(_, _ string, work func()) { work() }, func(work func()) { work() }
	}
	if outdated := looked.leadingTo(looked.taken.Key); len(outdated) > 0 {
		background("alias", p.record.ID(), func() { m.giveUpBranches(context.WithoutCancel(ctx), outdated, p.request.Model) })
	}
	if key, due := looked.needsAlias(&p.request.Conversation, home); due {
		beside(func() { m.deps.Pins.PutAlias(ctx, p.request.Account, key, home, p.request.Model) })
	}
	return group.Wait
}

// answered is what a hand-back needs to know of the turn and its answer, whose ticket is at home under a key.
func answered(p *Proving, of *Origin, a *answer.Result, home convcache.Key) pins.Answer {
	return pins.Answer{
		Prefill: of.Prefill, Decode: of.Decode, IDs: p.IDs, Account: p.request.Account, Model: p.request.Model, Salt: cmp.Or(p.request.TenantSalt, p.clientSalt),
		Conversation: p.record.Asked().Conversation, Key: home, Affinity: p.request.Conversation.Affinity,
		PromptTokens: a.Usage.Prompt,
	}
}

// giveUpBranches takes tickets that a turn saw and that no later turn needs: all of a conversation, at its last turn, and those that its newest
// ticket makes superfluous. It is called only if the turn succeeded, because a failed one is sent again and may use them.
func (m *Maker) giveUpBranches(ctx context.Context, branches []convcache.KeyedBranch, model string) {
	bounded, cancel := storetime.Limit(ctx, m.cfg.StoreTimeout)
	defer cancel()
	for _, b := range branches {
		m.deps.Pins.GiveUp(bounded, b.Key, b.ID, model)
	}
}

// StoredOutside is recorded for an answer that is handed back without being stored, because its request names no conversation.
const StoredOutside = "hand_back"

// ticketOf makes the ticket of an answer, or returns the reason why there is none.
func (m *Maker) ticketOf(p *Proving, looked *Lookup, of *Origin, a *answer.Result) (_ convcache.Ticket, parsed upstream.TicketParams, why string) {
	if why = m.noTicket(p, of, a); why != "" {
		return convcache.Ticket{}, parsed, why
	}
	decode := of.Decode.Engine()
	parsed, err := m.deps.Connector.ParseTicket(a.Params, of.BlockSize)
	misplaced := errors.Is(err, upstream.ErrMisplaced)
	if err != nil && !misplaced {
		m.cfg.Logger.Warn("decode's params can't be a ticket", "turn", p.record.ID(), "decode", decode.Name, "error", err)
		return convcache.Ticket{}, parsed, "ineligible_bad_params"
	}
	if !p.request.API.Rendered() { // of the others nothing is counted, see sentNothing
		of.Decode.Silence.SentParams()
	}
	m.deps.Pins.NoteGeneration(of.Decode, &parsed)
	switch {
	case misplaced:
		return convcache.Ticket{}, parsed, "ineligible_bad_params"
	case parsed.Groups != 1:
		// With several groups of blocks vLLM 0.32 can take a failed load for one that succeeded.
		return convcache.Ticket{}, parsed, "ineligible_block_groups"
	}
	id := pins.Name(decode.Name, &parsed)
	ticket := convcache.Ticket{
		Branch: convcache.Branch{
			ID: id, Outline: p.outline.of(id), Decode: holderOf(of.Decode),
			Tokens: parsed.Tokens, SharedPrefixTokens: p.sharedPrefixTokens(looked),
			Epoch: of.Epoch, Prefilled: of.Prefilled,
			FreshAsOf: a.FreshAsOf, Deadline: pins.Deadline(m.cfg.TTL, decode, a.FreshAsOf, parsed.Expires),
		},
		Params: parsed.Params, Reading: pins.ReadingOf(parsed), EngineID: parsed.EngineID,
	}
	if ticket.Epoch != m.deps.Epoch.Now() {
		return ticket, parsed, string(record.ReasonQuarantined)
	}
	why = p.proof.Seal(proof.Ending{
		Decode: of.Decode, Params: parsed, PromptTokens: a.Usage.Prompt, CompletionTokens: a.Usage.Completion,
	}, &ticket)
	return ticket, parsed, why
}

// noTicket returns the reason why an answer leaves no ticket, "" if nothing but decode's params can rule it out.
func (m *Maker) noTicket(p *Proving, of *Origin, a *answer.Result) (why string) {
	switch {
	case !p.request.Conversation.Known && p.proof == nil:
		return string(record.ReasonNoConversation)
	case p.request.Conversation.Final:
		return "final"
	case p.Ineligible != "":
		return "ineligible_" + p.Ineligible
	case !of.HandedOver():
		return "no_handover"
	case p.pair.Quarantined: // the hand-over comes from such a prefill instance
		return string(record.ReasonQuarantined)
	case of.Pair == nil:
		return proof.Unproven(proof.LacksIncarnation)
	case p.IDs.Lacks() != "":
		return proof.Unproven(p.IDs.Lacks())
	case a.Completeness == answer.Incomplete:
		return a.Completeness.Lacks()
	case a.Ineligible != "":
		return "ineligible_" + a.Ineligible
	case !a.Identified: // nothing shows that the answer belongs to this request
		return "ineligible_response_id"
	case a.Finish != "stop" && a.Finish != "length" && a.Finish != "tool_calls":
		return "ineligible_finish"
	case a.Params == nil && a.StopReason:
		return "ineligible_stop_string"
	case a.Params == nil:
		m.sentNothing(p, of.Decode)
		return string(record.ReasonNoParams)
	}
	return a.Completeness.Lacks()
}

// sentNothing records that a finished answer to a hand-over brought no params. Every stream of stock vLLM before 0.33 is such an answer
// (vLLM #40186). Answers of other APIs say nothing about the incarnation: a stream of Messages has no params without the plug-in, and a
// response has none behind a stop string.
func (m *Maker) sentNothing(p *Proving, decode *fleet.Incarnation) {
	if p.request.API.Rendered() {
		if p.request.API == body.Messages && p.request.Stream {
			m.lacksPlugIn(p, decode)
		}
		return
	}
	if decode.Silence.SentNothing() {
		m.warnNoParams(p, decode)
	}
}

// lacksPlugIn warns, once for each incarnation, that its streams of Messages bring no params.
func (m *Maker) lacksPlugIn(p *Proving, decode *fleet.Incarnation) {
	name, incarnation := decode.Engine().Name, decode.ID()
	if last, _ := m.plugInless.Swap(name, incarnation); last == incarnation {
		return
	}
	m.warnNoParams(p, decode)
}
