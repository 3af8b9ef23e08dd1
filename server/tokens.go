package server

import (
	"context"
	"errors"

	"carryover/convcache"
	"carryover/upstream"
)

// tokens is what one attempt knows of its prompt as token ids. The zero value is
// an attempt that takes no part in the token proof.
type tokens struct {
	wanted   bool // a ticket of this attempt can be proven: both engines use forwarded ids
	model    string
	features string         // the shape for which parity is learnt, "" if not comparable
	prefill  upstream.Facts // the start of prefill that this attempt talks to
	decode   upstream.Facts // the start of decode

	prompt *convcache.IDs // the ids that were compared with branches
	ids    []uint32       // the ids that prefill computed; before it answered, those it must compute
	raw    []byte         // the same as JSON
	sent   bool           // the prefill leg carried them
}

// tokensOf finds out whether this attempt can take part in the token proof. Each
// start of an engine is asked once whether it uses forwarded ids on chat; for text
// completions the ids are the prompt, which every engine takes.
func (s *Server) tokensOf(ctx context.Context, t *turn, p *pair) tokens {
	if !t.conversation.known || t.ineligible != "" || t.proof != ProofAuto || p.prefill == nil {
		return tokens{}
	}
	k := tokens{model: t.req.Model()}
	var prefillOK, decodeOK bool
	k.prefill, prefillOK = s.deps.Incarnations.Current(ctx, p.prefill)
	k.decode, decodeOK = s.deps.Incarnations.Current(ctx, p.decode)
	if !prefillOK || !decodeOK || s.deps.Capability.Barred(p.prefill, k.prefill.Incarnation) ||
		!s.usesIDs(ctx, t, p.prefill, k.prefill) || !s.usesIDs(ctx, t, p.decode, k.decode) {
		return tokens{}
	}
	k.wanted = true
	if features, comparable := t.req.FeatureSet(); comparable {
		k.features = features
	}
	return k
}

// usesIDs reports whether a leg to an instance may carry ids.
func (s *Server) usesIDs(ctx context.Context, t *turn, instance *upstream.Instance, facts upstream.Facts) bool {
	if t.api == upstream.Text {
		return true
	}
	return s.deps.Capability.Probe(ctx, instance, facts.Incarnation, t.req.Model(), t.authorization) == upstream.Yes
}

// promptIDs gets the ids of the new prompt from the chosen prefill instance, for
// comparison with what branches hold. Its /tokenize is believed only for shapes of
// requests for which it has given what the same start of prefill renders.
func (s *Server) promptIDs(ctx context.Context, t *turn, p *pair) Reason {
	k := &t.tokens
	if ids, ok := t.req.PromptIDs(); ok {
		k.setPrompt(s.chains, ids)
		return ""
	}
	if k.features == "" {
		return ReasonNotComparable
	}
	if s.deps.Parity.Known(p.prefill, k.prefill.Incarnation, k.model, k.features) != upstream.Trusted {
		return ReasonUnproven
	}
	ids, err := s.deps.Tokenizer.Tokenize(ctx, p.prefill, t.req, t.authorization)
	if err != nil {
		s.cfg.Logger.Debug("prompt can't be tokenised", "turn", t.id, "prefill", p.prefill.Name, "error", err)
		return ReasonTokenizeFailed
	}
	k.setPrompt(s.chains, ids)
	return ""
}

func (k *tokens) setPrompt(chains convcache.ChainKey, ids []uint32) {
	k.ids, k.raw = ids, upstream.AppendIDs(nil, ids)
	k.prompt = chains.IDs(ids)
}

// forward decides whether the prefill leg carries ids: with a ticket always, so
// that what was proven is what is computed; else prefill renders by itself, and
// parity can be learnt from what it says it rendered.
func (k *tokens) forward(withTicket bool) {
	k.sent = withTicket
	if !withTicket {
		k.ids, k.raw = nil, nil
	}
}

// errReceipt is a prefill answer that does not repeat the ids that it was sent.
var errReceipt = errors.New("prefill did not compute the ids that it was sent; restart it, its prefix cache is in doubt")

// receipt checks prefill's answer. With ids sent it must repeat them; without, it
// tells what it rendered, which decode is to use, and which /tokenize is measured
// by.
func (s *Server) receiptOf(t *turn, p *pair, answer upstream.PrefillAnswer, asked <-chan []uint32) error {
	k := &t.tokens
	switch {
	case !k.wanted:
		return nil
	case k.sent && !upstream.EqualIDs(answer.PromptIDs, k.ids):
		s.deps.Capability.Bar(p.prefill, k.prefill.Incarnation)
		s.cfg.Logger.Error("prefill is barred from reuse until it is restarted", "turn", t.id, "prefill", p.prefill.Name, "error", errReceipt)
		return &upstream.LegError{Role: upstream.RolePrefill, Instance: p.prefill.Name, Kind: upstream.Receipt, Sent: true, Err: errReceipt}
	case k.sent:
		return nil
	}
	ids, ok := upstream.ParseIDs(answer.PromptIDs)
	if !ok { // an engine that does not tell; nothing can be proven later
		k.wanted = false
		return nil
	}
	k.ids, k.raw = ids, answer.PromptIDs
	if asked == nil {
		return nil
	}
	if tokenised := <-asked; tokenised != nil {
		equal := upstream.EqualIDs(answer.PromptIDs, tokenised)
		if s.deps.Parity.Learn(p.prefill, k.prefill.Incarnation, k.model, k.features, equal) == upstream.Barred && !equal {
			s.cfg.Logger.Warn("tokenize differs from what prefill renders; requests of this shape reuse nothing",
				"turn", t.id, "prefill", p.prefill.Name, "shape", k.features)
		}
	}
	return nil
}

// askParity has the prompt tokenised while prefill computes it, for a shape whose
// parity is not known yet. The result is nil if that failed. It is never closed
// and has room for the one answer, so that nobody needs to wait for it.
func (s *Server) askParity(ctx context.Context, t *turn, p *pair) <-chan []uint32 {
	k := &t.tokens
	if !k.wanted || k.sent || k.features == "" ||
		s.deps.Parity.Known(p.prefill, k.prefill.Incarnation, k.model, k.features) != upstream.Unknown {
		return nil
	}
	asked := make(chan []uint32, 1)
	req, authorization := t.req, t.authorization
	s.detached.Go(func() {
		ids, err := s.deps.Tokenizer.Tokenize(ctx, p.prefill, req, authorization)
		if err != nil {
			ids = nil
		}
		asked <- ids
	})
	return asked
}
