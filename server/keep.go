package server

import (
	"context"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/upstream"
)

// How much earlier than decode a ticket ends. Prefill still has to queue and to
// shake hands before it reads; with remote_blocks_expiry_time it declines blocks
// that are about to expire by itself (vLLM #47021), without it nobody does.
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

// keep puts the ticket that an answer leaves behind, or says why there is none and
// has its blocks released. It is called before the client can see the end of the
// answer, so that a next turn that follows at once, on any replica, finds it; and
// again on every exit, for answers that did not get so far. The first call counts.
func (s *Server) keep(ctx context.Context, t *turn, a *answer) {
	if a.kept || a.foreign { // a foreign answer's blocks are another request's
		return
	}
	a.kept = true
	d := a.decoding
	if a.complete() && d.handed {
		s.releases.met(d.carrier)
	}
	ticket, kept, why := s.ticketOf(t, a)
	if why != "" {
		t.receipt.stored = why
		s.unuseParams(a.params, leftover{decode: d.instance, incarnation: d.facts.Incarnation, model: t.model, caughtUp: a.caughtUp})
		return
	}
	if !s.blocks.fresh(ticket.Decode, kept) {
		t.receipt.stored = "duplicate"
		s.cfg.Logger.Error("two answers name the same blocks; the ticket of one is dropped", "turn", t.id, "decode", ticket.Decode)
		return
	}
	learning, learnt := s.storeContext(ctx)
	t.tokens.parity.await(learning)
	learnt()
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	if outcome := s.put(bounded, t, ticket); outcome != convcache.Stored {
		t.receipt.stored = outcome.String()
		return
	}
	t.receipt.stored = "yes"
	s.watchBranches(t, ticket)
}

// put stores a ticket, and has released what the store gave back or did not take.
func (s *Server) put(ctx context.Context, t *turn, ticket convcache.Ticket) convcache.Outcome {
	displaced, outcome := s.deps.Store.Put(ctx, t.conversation.key, ticket, time.Until(ticket.Deadline))
	for _, old := range displaced {
		s.unuse(t, old)
	}
	if outcome != convcache.Stored && outcome != convcache.Unavailable { // that may have been stored after all
		s.unuse(t, ticket)
	}
	return outcome
}

// ticketOf makes the ticket of an answer, or returns the reason for which there is
// none.
func (s *Server) ticketOf(t *turn, a *answer) (_ convcache.Ticket, kept upstream.Kept, why string) {
	d := a.decoding
	switch {
	case !t.conversation.known:
		why = string(ReasonNoConversation)
	case t.ineligible != "":
		why = "ineligible_" + t.ineligible
	case !d.handed:
		why = "no_handover"
	case d.barred:
		why = string(lacks(whyBarred))
	case d.carrier == carrier{}:
		why = string(lacks(whyStart))
	case t.proof == ProofAuto && !t.tokens.wanted:
		why = string(lacks(t.tokens.why))
	case !a.complete():
		why = "incomplete"
	case a.odd != "":
		why = "ineligible_" + a.odd
	case a.finish != "stop" && a.finish != "length" && a.finish != "tool_calls":
		why = "ineligible_" + convcache.WhyFinish
	case a.params == nil && a.stopReason:
		why = "ineligible_" + convcache.WhyStopString
	case a.params == nil:
		s.engineSentNothing(t, d)
		why = string(ReasonNoParams)
	}
	if why != "" {
		return convcache.Ticket{}, kept, why
	}
	kept, err := s.deps.Connector.Keep(a.params)
	if err != nil {
		s.cfg.Logger.Warn("decode's params can't be a ticket", "turn", t.id, "decode", d.instance.Name, "error", err)
		return convcache.Ticket{}, kept, "ineligible_bad_params"
	}
	s.silent.heard(d.instance.Name)
	ticket := convcache.Ticket{
		ID: convcache.NewTicketID(), Decode: d.instance.Name, Incarnation: d.facts.Incarnation, EngineID: kept.EngineID,
		Params: kept.Params, Tokens: kept.Tokens, Groups: kept.Groups, CaughtUp: a.caughtUp,
		Deadline: s.deadline(d.instance, a.caughtUp, kept.Expires),
	}
	switch why = s.misshapen(kept, d.facts.BlockSize); {
	case why != "":
	case t.proof == ProofHistory:
		why = proveHistory(t, a, &ticket)
	default:
		why = s.proveTokens(a, kept, &ticket)
	}
	return ticket, kept, why
}

// misshapen says why no ticket can be made of such blocks.
func (s *Server) misshapen(kept upstream.Kept, blockSize int) (why string) {
	switch {
	case kept.Groups != 1 && !s.cfg.ReuseHybrid:
		// Where several groups of blocks are read, vLLM 0.32 takes a load that failed for one
		// that succeeded.
		return "ineligible_block_groups"
	case kept.Groups == 1 && blockSize > 0 && kept.Blocks != (kept.Tokens+blockSize-1)/blockSize:
		// Prefill takes the last blocks of the list for the last tokens (vLLM
		// nixl/base_worker.py): one block more and all are misplaced, one less and the
		// engine dies.
		return "ineligible_block_count"
	}
	return ""
}

// proveHistory adds to a ticket what a later request has to repeat.
func proveHistory(t *turn, a *answer, ticket *convcache.Ticket) (why string) {
	reply := a.reply()
	facts := convcache.ReplyFacts{FinishReason: a.finish, StopReason: a.stopReason, Reasoning: a.reasoning}
	if why, ok := convcache.Eligible(reply, facts); !ok {
		return "ineligible_" + why
	}
	ticket.HistoryOK = true
	ticket.History, ticket.Covers = t.history.After(reply)
	return ""
}

// proveTokens adds to a ticket the chain of the tokens whose KV decode holds: the
// prompt as prefill computed it, and the output as decode sampled it.
func (s *Server) proveTokens(a *answer, kept upstream.Kept, ticket *convcache.Ticket) (why string) {
	d := a.decoding
	plugIn := kept.OutputIDs != nil
	s.deps.Capability.LearnPlugIn(d.instance, d.facts.Incarnation, plugIn)
	output := a.chain.Len() - a.promptIDs
	switch {
	case plugIn && output == 0:
		a.chain.Add(kept.OutputIDs)
		output = len(kept.OutputIDs)
	case plugIn && output != len(kept.OutputIDs):
		return "ineligible_token_count" // decode has told both ways
	case output == 0:
		return string(lacks(whyIDs))
	}
	// remote_num_tokens may be all ids or one less, so that an id that was lost on the way, or came twice, shows
	// in the usage alone.
	if u := a.usage; u.prompt >= 0 && u.prompt != a.promptIDs || u.completion >= 0 && u.completion != output {
		return "ineligible_token_count"
	}
	chain, ok := a.chain.Chain(kept.Tokens)
	if !ok {
		return "ineligible_token_count"
	}
	ticket.Chain = chain
	return ""
}

// deadline is until when a ticket may be used. It counts from a moment at which decode
// had not finished, since decode's own clock has been running from the moment it did.
// It is a moment and no duration, so that a pause before it is applied costs the ticket
// that time.
func (s *Server) deadline(decode *upstream.Instance, caughtUp time.Time, expires bool) time.Time {
	margin := marginWithoutExpiry
	if expires {
		margin = MarginWithExpiry
	}
	return caughtUp.Add(min(decode.KVTTL-margin, s.cfg.TTL))
}

// engineSentNothing records that a finished answer to a hand-over brought no
// params, which stock vLLM does in every stream (vLLM #40186).
func (s *Server) engineSentNothing(t *turn, d *decoding) {
	if s.silent.add(d.instance.Name) {
		s.cfg.Logger.Warn("decode sends no kv_transfer_params at the end of its answers, so nothing can be reused: "+
			"stock vLLM omits them from streams; install the plug-in in the engine, or set --decode-stream buffered",
			"decode", d.instance.Name, "turn", t.id)
	}
}

// silence counts, per decode instance, finished answers in a row without params.
type silence struct {
	mu    sync.Mutex // guards count
	count map[string]int
}

// silentAfter is how many such answers make an instance one that sends none: vLLM
// leaves them out of single answers for reasons of its own.
const silentAfter = 3

// add reports whether the instance has just become silent.
func (q *silence) add(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count[name]++
	return q.count[name] == silentAfter
}

func (q *silence) heard(name string) {
	q.mu.Lock()
	delete(q.count, name)
	q.mu.Unlock()
}

// is reports whether an instance is silent.
func (q *silence) is(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count[name] >= silentAfter
}
