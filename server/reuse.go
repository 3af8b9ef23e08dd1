package server

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/upstream"
)

// held is a ticket between its take and its fate.
type held struct {
	ticket *convcache.Ticket
	holder *upstream.Instance // the decode instance whose blocks it names
	pair   instances          // whom the ticket's fate tells about
	offer  convcache.Offer    // how much of it this request may use
	// sent is true once a byte of it may have reached an engine; it is spent then,
	// whatever the engine says.
	sent      bool
	concluded bool // the pair's trials know the ticket's fate
	// release is an unused ticket that rides on a leg without one, by carrier.
	release *unused
	carrier carrier
}

// instances names a pair of prefill and decode, each in its incarnation.
type instances struct{ prefill, decode string }

// find looks for a ticket that this request may use on this pair, and takes it. It
// is called as late as possible, so that every earlier failure leaves the ticket
// where it is.
func (s *Server) find(ctx context.Context, t *turn, p *pair) *held {
	began := time.Now()
	defer func() { t.receipt.lookup = time.Since(began) }()
	p.starts = s.startsOf(ctx, t, p)
	t.tokens = s.tokensOf(ctx, t, p)
	h, reason := s.look(ctx, t, p)
	t.receipt.hit, t.receipt.reason, t.receipt.offered = h.ticket != nil, reason, h.offer.Tokens
	if h.ticket != nil {
		t.receipt.caughtUp = h.ticket.CaughtUp
	}
	t.tokens.forward(h.ticket != nil)
	return h
}

func (s *Server) look(ctx context.Context, t *turn, p *pair) (*held, Reason) {
	if reason := excludes(t, p); reason != "" {
		return &held{}, reason
	}
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	branches, outcome := s.deps.Store.Peek(bounded, t.conversation.key)
	t.branches = branches
	if outcome != convcache.Found {
		return &held{}, s.missReason(t, p, outcome)
	}
	prove := s.appendOnly
	if t.proof == ProofAuto {
		prove = s.promptIDs
	}
	if reason := prove(ctx, t, p); reason != "" {
		return &held{}, reason
	}
	return s.take(ctx, t, p, branches)
}

// excludes names the reason for which this turn looks for no ticket at all.
func excludes(t *turn, p *pair) Reason {
	switch {
	case t.conversation.off:
		return ReasonBypass
	case !t.conversation.known:
		return ReasonNoConversation
	case t.ineligible != "":
		return Reason("ineligible_" + t.ineligible)
	case p.prefill == nil && !p.barred:
		return ReasonBypass
	case t.withoutTicket != "":
		return t.withoutTicket
	case t.unprovable(p) != "":
		return lacks(t.unprovable(p))
	case t.proof == ProofHistory && t.api == upstream.Chat && !t.history.HasAssistant():
		return ReasonFirstTurn
	}
	return ""
}

// unprovable says why an attempt can prove nothing, "" if it can. Without known starts it can't be told
// whether the blocks of a ticket are still there.
func (t *turn) unprovable(p *pair) string {
	switch {
	case p.barred:
		return whyBarred
	case !p.starts.known():
		return whyStart
	case t.proof == ProofAuto:
		return t.tokens.why
	}
	return ""
}

// offer says how much of a branch this request may use: what tokens prove, or by
// history all or nothing. Part of a ticket is whole blocks of prefill's too.
func (s *Server) offer(t *turn, p *pair, b convcache.Branch) convcache.Offer {
	if t.proof == ProofAuto {
		if unproven && b.Tokens <= len(t.tokens.ids) {
			return convcache.Offer{Tokens: b.Tokens, Whole: true}
		}
		o := t.tokens.prompt.Offer(b)
		if !o.Whole && p.starts.prefill.BlockSize != b.Chain.BlockSize {
			return convcache.Offer{}
		}
		return o
	}
	if t.history.Extends(b) {
		return convcache.Offer{Tokens: b.Tokens, Whole: true}
	}
	return convcache.Offer{}
}

// choice is a branch with what may be used of it.
type choice struct {
	branch convcache.Branch
	offer  convcache.Offer
}

// take takes the branch of which the request may use most. When another request
// was faster, or Redis has failed over since it was put, the next-best branch of
// the same look is tried, once.
func (s *Server) take(ctx context.Context, t *turn, p *pair, branches []convcache.Branch) (*held, Reason) {
	var choices []choice
	for _, b := range branches {
		if o := s.offer(t, p, b); o.Tokens > 0 {
			choices = append(choices, choice{b, o})
		}
	}
	slices.SortStableFunc(choices, func(a, b choice) int { return b.offer.Tokens - a.offer.Tokens })
	reason := ReasonRewritten
	takes := 0
	for _, c := range choices {
		if c.offer.Tokens < s.cfg.ReuseMinTokens || float64(c.offer.Tokens) < s.cfg.ReuseMinShare*float64(c.branch.Tokens) {
			reason = ReasonBelowThreshold
			continue
		}
		holder := s.holder(ctx, p, c.branch)
		if holder == nil {
			reason = ReasonInstanceGone
			continue
		}
		pair := instances{named(p.prefill, p.starts.prefill.Incarnation), named(holder, c.branch.Incarnation)}
		if why := s.admit(pair); why != "" {
			reason = why
			continue
		}
		h, outcome := s.takeBranch(ctx, t, p, c, held{holder: holder, pair: pair, offer: c.offer})
		if h != nil {
			return h, ""
		}
		reason = s.missReason(t, p, outcome)
		if takes++; outcome != convcache.Consumed && outcome != convcache.Fenced || takes == 2 {
			break
		}
	}
	return &held{}, reason
}

// takeBranch completes h with one branch's ticket, which must be worth what the
// branch promised. Without a ticket the trial that admit may have begun is over,
// even if the store panics: a pair whose trial never ends is lost to reuse.
func (s *Server) takeBranch(ctx context.Context, t *turn, p *pair, c choice, h held) (_ *held, outcome convcache.Outcome) {
	defer func() {
		if h.ticket == nil {
			s.deps.Trials.End(h.pair.prefill, h.pair.decode, upstream.Inconclusive)
		}
	}()
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	ticket, outcome := s.deps.Store.Take(bounded, t.conversation.key, c.branch.ID)
	if outcome != convcache.Taken {
		return nil, outcome
	}
	if got := ticket.Branch(); s.offer(t, p, got) != c.offer || got.Decode != c.branch.Decode || got.Incarnation != c.branch.Incarnation {
		s.unuse(t, ticket) // it is not what was looked at
		return nil, outcome
	}
	h.ticket = &ticket
	return &h, outcome
}

// named is how the trials know an instance: by what it is until its next start.
func named(instance *upstream.Instance, incarnation string) string {
	return instance.Name + "@" + incarnation
}

// admit asks whether this pair may be offered a ticket now.
func (s *Server) admit(pair instances) Reason {
	switch s.deps.Trials.Begin(pair.prefill, pair.decode) {
	case upstream.NoReuse:
		return ReasonNotBidirectional
	case upstream.Busy:
		return ReasonPairOnTrial
	}
	return ""
}

// holder returns the decode instance of a branch if it is still there, in the same
// start as when it answered: after a restart the blocks are gone.
func (s *Server) holder(ctx context.Context, p *pair, b convcache.Branch) *upstream.Instance {
	if !s.deps.Pool.Reachable(upstream.RoleDecode, b.Decode) {
		return nil
	}
	instance := p.decode
	if instance.Name != b.Decode {
		if instance = s.instance(upstream.RoleDecode, b.Decode); instance == nil {
			return nil
		}
	}
	// Since the pair was picked its engines may have been probed and asked for ids, for seconds.
	start, _ := s.deps.Incarnations.Current(ctx, instance)
	if start.Incarnation == "" || start.Incarnation != b.Incarnation {
		return nil
	}
	return instance
}

// settle says what became of a ticket: nothing of it was sent, so it goes back
// with what is left of its life; or it was sent, and is spent or given up, which
// an engine notices by itself when its blocks are read or their time is over.
func (s *Server) settle(ctx context.Context, t *turn, h *held) {
	ticket := h.ticket
	if ticket == nil {
		return
	}
	s.conclude(t, h, upstream.Inconclusive)
	h.ticket = nil // a stream of minutes must not hold it
	if h.sent {
		s.spent(*ticket)
		return
	}
	t.receipt.hit, t.receipt.reason = false, ReasonRetried
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	s.put(bounded, t, *ticket)
}

// conclude tells the trials of a pair what became of a ticket, once. It is called
// when prefill has answered, not at the end of the turn: decode may go on for
// minutes, and the pair would be on trial for as long.
func (s *Server) conclude(t *turn, h *held, fate upstream.Fate) {
	if h.ticket == nil || h.concluded {
		return
	}
	h.concluded = true
	pause, resumed := s.deps.Trials.End(h.pair.prefill, h.pair.decode, fate)
	attrs := []any{"prefill", h.pair.prefill, "decode", h.pair.decode, "turn", t.id}
	switch {
	case resumed:
		s.cfg.Logger.Info("prefill answers tickets of decode again; reuse is on for this pair", attrs...)
	case pause > 0:
		why := "prefill does not answer tickets of decode"
		if fate == upstream.Failed {
			why = "prefill answers 5xx to tickets of decode"
		}
		s.cfg.Logger.Warn("reuse is off for a pair", append(attrs, "why", why, "tried_again_in", pause.String())...)
	}
}

// storeContext bounds a store operation. It is detached: a client that leaves must
// not cut a take in half.
func (s *Server) storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
}

// appendOnly asks once per start of prefill, model and kwargs whether history can be
// a prefix at all, and returns why a ticket may not be used, "" if it may. A question
// that failed shows nothing.
func (s *Server) appendOnly(ctx context.Context, t *turn, p *pair) Reason {
	if t.api != upstream.Chat {
		return ""
	}
	model, _ := t.req.String("model")
	kwargs, _ := t.req.Member("chat_template_kwargs")
	switch s.deps.Templates.AppendOnly(ctx, p.prefill, p.starts.prefill.Incarnation, upstream.Template{Model: model, Kwargs: kwargs}, t.authorization) {
	case upstream.Yes:
		return ""
	case upstream.No:
		return ReasonNotAppendOnly
	}
	return ReasonTokenizeFailed
}
