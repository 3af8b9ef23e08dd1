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
	marginWithExpiry    = 30 * time.Second
	marginWithoutExpiry = 60 * time.Second
)

// keep puts the ticket that an answer leaves behind, or says why there is none and
// has its blocks released. It is called before the client can see the end of the
// answer, so that a next turn that follows at once, on any replica, finds it.
func (s *Server) keep(ctx context.Context, t *turn, a *answer) {
	d := a.decoding
	left := leftover{decode: d.instance, incarnation: d.facts.Incarnation, model: t.model, caughtUp: d.CaughtUp()}
	if a.done && !a.failed && d.handover.answered != nil {
		s.releases.met(carrier{named(d.handover.from, d.handover.start), named(d.instance, d.facts.Incarnation)})
	}
	ticket, life, why := s.ticketOf(t, a)
	if why != "" {
		t.receipt.stored = why
		s.unuseParams(a.params, left)
		return
	}
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	displaced, outcome := s.deps.Store.Put(bounded, t.conversation.key, ticket, life)
	for _, old := range displaced {
		s.unuse(t, old)
	}
	if outcome == convcache.Stored {
		t.receipt.stored = "yes"
		s.watchBranches(t, ticket)
		return
	}
	t.receipt.stored = outcome.String()
	if outcome != convcache.Unavailable { // else it may have been stored after all
		s.unuseParams(a.params, left)
	}
}

// ticketOf makes the ticket of an answer and says how long it may live, or returns
// the reason for which there is none.
func (s *Server) ticketOf(t *turn, a *answer) (_ convcache.Ticket, life time.Duration, why string) {
	d := a.decoding
	switch {
	case !t.conversation.known:
		why = string(ReasonNoConversation)
	case t.ineligible != "":
		why = "ineligible_" + t.ineligible
	case t.proof == ProofAuto && !t.tokens.wanted:
		why = string(ReasonUnproven)
	case d.handover.answered == nil:
		why = "no_handover"
	case a.failed, !a.done:
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
		return convcache.Ticket{}, 0, why
	}
	kept, err := s.deps.Connector.Keep(a.params)
	if err != nil {
		s.cfg.Logger.Warn("decode's params can't be a ticket", "turn", t.id, "decode", d.instance.Name, "error", err)
		return convcache.Ticket{}, 0, "ineligible_bad_params"
	}
	s.silent.heard(d.instance.Name)
	ticket := convcache.Ticket{
		ID: convcache.NewTicketID(), Decode: d.instance.Name, Incarnation: d.facts.Incarnation, EngineID: kept.EngineID,
		Params: kept.Params, Tokens: kept.Tokens, Groups: kept.Groups, CaughtUp: d.CaughtUp(),
	}
	if t.proof == ProofHistory {
		why = s.proveHistory(t, a, &ticket)
	} else {
		why = s.proveTokens(t, a, kept, &ticket)
	}
	return ticket, s.life(d.instance, d.CaughtUp(), kept.Expires), why
}

// proveHistory adds to a ticket what a later request has to repeat.
func (s *Server) proveHistory(t *turn, a *answer, ticket *convcache.Ticket) (why string) {
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
func (s *Server) proveTokens(t *turn, a *answer, kept upstream.Kept, ticket *convcache.Ticket) (why string) {
	d := a.decoding
	output := kept.OutputIDs
	s.deps.Capability.LearnPlugIn(d.instance, d.facts.Incarnation, output != nil)
	if output == nil {
		output = a.ids
	}
	k := &t.tokens
	chain, ok := s.chains.Chain(k.ids, output, kept.Tokens, d.facts.BlockSize)
	if !ok || a.promptSize != 0 && a.promptSize != len(k.ids) {
		return "ineligible_token_count"
	}
	// Prefill takes the last blocks of the list for the last tokens (vLLM
	// nixl/base_worker.py): one block more and all are misplaced, one less and the
	// engine dies.
	if size := d.facts.BlockSize; kept.Groups == 1 && size > 0 && kept.Blocks != (kept.Tokens+size-1)/size {
		return "ineligible_block_count"
	}
	ticket.Chain = chain
	return ""
}

// life is how long a ticket may be used from now on. It counts from the last
// moment at which the reader was caught up with decode, since decode's own clock
// has been running from the moment it finished.
func (s *Server) life(decode *upstream.Instance, caughtUp time.Time, expires bool) time.Duration {
	margin := marginWithoutExpiry
	if expires {
		margin = marginWithExpiry
	}
	return min(decode.KVTTL-margin, s.cfg.TTL) - time.Since(caughtUp)
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

// any reports whether some instance is silent.
func (q *silence) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.count {
		if n >= silentAfter {
			return true
		}
	}
	return false
}
