package server

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/upstream"
)

// Reason says why a turn reused nothing. The set is closed; ineligible_<why> is
// the only open end, and its words are those of this package, upstream and
// convcache.
type Reason string

// The reasons of a miss.
const (
	ReasonFirstTurn        Reason = "first_turn"
	ReasonNoConversation   Reason = "no_conversation"
	ReasonExpired          Reason = "expired"
	ReasonRewritten        Reason = "history_rewritten"
	ReasonBelowThreshold   Reason = "below_threshold"
	ReasonConsumed         Reason = "consumed"
	ReasonNothingStored    Reason = "nothing_stored"
	ReasonInstanceGone     Reason = "instance_gone"
	ReasonStoreUnavailable Reason = "store_unavailable"
	ReasonUnproven         Reason = "ineligible_unproven"
	ReasonNotBidirectional Reason = "prefill_not_bidirectional"
	ReasonPairOnTrial      Reason = "pair_on_trial"
	ReasonRetried          Reason = "retried_without_ticket"
	ReasonNoParams         Reason = "engine_sends_no_params"
	ReasonNotAppendOnly    Reason = "template_not_append_only"
	ReasonBypass           Reason = "bypass"
)

// held is a ticket between its take and its fate.
type held struct {
	ticket  *convcache.Ticket
	holder  *upstream.Instance // the decode instance whose blocks it names
	prefill string             // the instance it is for
	// sent is true once a byte of it may have reached an engine; it is spent then,
	// whatever the engine says.
	sent bool
	fate upstream.Fate
}

// params is what the connector gets: nil without a ticket.
func (h *held) params() []byte {
	if h.ticket == nil {
		return nil
	}
	return h.ticket.Params
}

// find looks for a ticket that this request may use on this pair, and takes it. It
// is called as late as possible, so that every earlier failure leaves the ticket
// where it is.
func (s *Server) find(ctx context.Context, t *turn, p *pair) *held {
	began := time.Now()
	defer func() { t.receipt.lookup = time.Since(began) }()
	t.receipt.ticket = nil
	if reason := s.excludes(ctx, t, p); reason != "" {
		t.receipt.reason = reason
		return &held{}
	}
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	branches, outcome := s.deps.Store.Peek(bounded, t.conversation.key)
	if outcome != convcache.Found {
		t.receipt.reason = s.missReason(t, outcome)
		return &held{}
	}
	h, reason := s.take(ctx, t, p, branches)
	t.receipt.reason = reason
	t.receipt.ticket = h.ticket
	return h
}

// excludes names the reason for which this turn looks for no ticket at all.
func (s *Server) excludes(ctx context.Context, t *turn, p *pair) Reason {
	switch {
	case t.conversation.off:
		return ReasonBypass
	case !t.conversation.known:
		return ReasonNoConversation
	case t.ineligible != "":
		return Reason("ineligible_" + t.ineligible)
	case p.prefill == nil:
		return ReasonBypass
	case t.withoutTicket != "":
		return t.withoutTicket
	case t.api == upstream.Chat && t.proof == ProofHistory && !t.history.HasAssistant():
		return ReasonFirstTurn
	case t.proof != ProofHistory:
		return ReasonUnproven
	case !s.appendOnly(ctx, t, p.prefill):
		return ReasonNotAppendOnly
	}
	return ""
}

// take takes the best branch that the request extends. When another request was
// faster, the next-best branch of the same look is tried, once.
func (s *Server) take(ctx context.Context, t *turn, p *pair, branches []convcache.Branch) (*held, Reason) {
	usable := slices.DeleteFunc(slices.Clone(branches), func(b convcache.Branch) bool { return !t.history.Extends(b) })
	slices.SortStableFunc(usable, func(a, b convcache.Branch) int { return b.Covers - a.Covers })
	reason := ReasonRewritten
	takes := 0
	for _, branch := range usable {
		holder := s.holder(branch.Decode)
		switch {
		case branch.Tokens < s.cfg.ReuseMinTokens:
			reason = ReasonBelowThreshold
			continue
		case holder == nil:
			reason = ReasonInstanceGone
			continue
		}
		if why := s.admit(p.prefill.Name, branch.Decode); why != "" {
			reason = why
			continue
		}
		h, outcome := s.takeBranch(ctx, t, branch, held{holder: holder, prefill: p.prefill.Name})
		if h != nil {
			return h, ""
		}
		reason = s.missReason(t, outcome)
		if takes++; outcome != convcache.Consumed || takes == 2 {
			break
		}
	}
	return &held{}, reason
}

// takeBranch completes h with one branch's ticket. Without a ticket the trial that
// admit may have begun is over, even if the store panics: a pair whose trial never
// ends is lost to reuse.
func (s *Server) takeBranch(ctx context.Context, t *turn, branch convcache.Branch, h held) (_ *held, outcome convcache.Outcome) {
	defer func() {
		if h.ticket == nil {
			s.deps.Trials.End(h.prefill, branch.Decode, upstream.Inconclusive)
		}
	}()
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	ticket, outcome := s.deps.Store.Take(bounded, t.conversation.key, branch.ID)
	if outcome != convcache.Taken || !t.history.Extends(ticket.Branch()) || ticket.Decode != h.holder.Name {
		return nil, outcome
	}
	h.ticket = &ticket
	return &h, outcome
}

// admit asks whether this pair may be offered a ticket now.
func (s *Server) admit(prefill, decode string) Reason {
	switch s.deps.Trials.Begin(prefill, decode) {
	case upstream.NoReuse:
		return ReasonNotBidirectional
	case upstream.Busy:
		return ReasonPairOnTrial
	}
	return ""
}

// holder returns the decode instance of a ticket if it is still there.
func (s *Server) holder(name string) *upstream.Instance {
	if !s.deps.Pool.Reachable(upstream.RoleDecode, name) {
		return nil
	}
	for _, instance := range s.deps.Pool.Instances(upstream.RoleDecode) {
		if instance.Name == name {
			return instance
		}
	}
	return nil
}

// settle says what became of a ticket: nothing of it was sent, so it goes back
// with what is left of its life; or it was sent, and is spent or given up, which
// an engine notices by itself when its blocks are read or their time is over.
func (s *Server) settle(ctx context.Context, t *turn, h *held) {
	if h.ticket == nil {
		return
	}
	if s.deps.Trials.End(h.prefill, h.ticket.Decode, h.fate) {
		s.cfg.Logger.Warn("prefill does not answer tickets of decode; reuse is off for this pair",
			"prefill", h.prefill, "decode", h.ticket.Decode, "turn", t.id)
	}
	if h.sent {
		return
	}
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	s.deps.Store.Put(bounded, t.conversation.key, *h.ticket, time.Until(h.ticket.Deadline))
	if t.receipt.ticket == h.ticket {
		t.receipt.ticket, t.receipt.reason = nil, ReasonRetried
	}
}

// missReason translates a store's outcome.
func (s *Server) missReason(t *turn, outcome convcache.Outcome) Reason {
	switch outcome {
	case convcache.Empty:
		if s.silent.any() {
			return ReasonNoParams
		}
		if t.api == upstream.Text {
			return ReasonFirstTurn
		}
		return ReasonNothingStored
	case convcache.Expired:
		return ReasonExpired
	case convcache.Consumed:
		return ReasonConsumed
	case convcache.Taken:
		// What was taken is not what was looked at: it is given up.
		return ReasonRewritten
	}
	return ReasonStoreUnavailable
}

// storeContext bounds a store operation. It is detached: a client that leaves must
// not cut a take in half.
func (s *Server) storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
}

// appendOnly asks once per model and kwargs whether history can be a prefix at
// all. An engine that can't be asked is taken at its word: history proof is for
// engines without token support.
func (s *Server) appendOnly(ctx context.Context, t *turn, prefill *upstream.Instance) bool {
	if t.api != upstream.Chat {
		return true
	}
	model, _ := t.req.String("model")
	kwargs, _ := t.req.Member("chat_template_kwargs")
	appendOnly, ok := s.deps.Templates.AppendOnly(ctx, prefill, model, kwargs, t.authorization)
	return appendOnly || !ok
}
