package server

import (
	"context"
	"sync"
	"time"

	"carryover/convcache"
)

// How much earlier than decode a ticket ends. Prefill still has to queue and to
// shake hands before it reads; with remote_blocks_expiry_time it declines blocks
// that are about to expire by itself (vLLM #47021), without it nobody does.
const (
	marginWithExpiry    = 30 * time.Second
	marginWithoutExpiry = 60 * time.Second
)

// keep puts the ticket that an answer leaves behind, or says why there is none. It
// is called before the client can see the end of the answer, so that a next turn
// that follows at once, on any replica, finds it.
func (s *Server) keep(ctx context.Context, t *turn, a *answer) {
	t.receipt.stored = s.store(ctx, t, a)
}

// store returns "yes" or the reason for which nothing is kept.
func (s *Server) store(ctx context.Context, t *turn, a *answer) string {
	d := a.decoding
	switch {
	case !t.conversation.known:
		return string(ReasonNoConversation)
	case t.ineligible != "":
		return "ineligible_" + t.ineligible
	case t.proof != ProofHistory:
		return string(ReasonUnproven)
	case d.handover.params == nil:
		return "no_handover"
	case a.failed, !a.done:
		return "incomplete"
	case a.odd != "":
		return "ineligible_" + a.odd
	}
	reply := a.reply()
	facts := convcache.ReplyFacts{FinishReason: a.finish, StopReason: a.stopReason, Reasoning: a.reasoning}
	if a.params == nil && !a.stopReason {
		s.engineSentNothing(t, d)
		return string(ReasonNoParams)
	}
	if why, ok := convcache.Eligible(reply, facts); !ok {
		return "ineligible_" + why
	}
	tokens, expires, err := s.deps.Connector.Keep(a.params)
	if err != nil {
		s.cfg.Logger.Warn("decode's params can't be a ticket", "turn", t.id, "decode", d.instance.Name, "error", err)
		return "ineligible_bad_params"
	}
	s.silent.heard(d.instance.Name)
	ticket := convcache.Ticket{
		ID: convcache.NewTicketID(), HistoryOK: true, Decode: d.instance.Name,
		Params: a.params, Tokens: tokens, CaughtUp: d.CaughtUp(),
	}
	ticket.History, ticket.Covers = t.history.After(reply)
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	_, outcome := s.deps.Store.Put(bounded, t.conversation.key, ticket, s.life(d, expires))
	if outcome != convcache.Stored {
		return outcome.String()
	}
	return "yes"
}

// life is how long a ticket may be used from now on. It counts from the last
// moment at which the reader was caught up with decode, since decode's own clock
// has been running from the moment it finished.
func (s *Server) life(d *decoding, expires bool) time.Duration {
	margin := marginWithoutExpiry
	if expires {
		margin = marginWithExpiry
	}
	return min(d.instance.KVTTL-margin, s.cfg.TTL) - time.Since(d.CaughtUp())
}

// engineSentNothing records that a finished answer to a hand-over brought no
// params, which stock vLLM does in every stream (vLLM #40186).
func (s *Server) engineSentNothing(t *turn, d *decoding) {
	if s.silent.add(d.instance.Name) {
		s.cfg.Logger.Warn("decode sends no kv_transfer_params at the end of its answers, so nothing can be reused: "+
			"stock vLLM omits them from streams; see the README on engines that send them",
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
