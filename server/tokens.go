package server

import (
	"context"

	"carryover/convcache"
	"carryover/sse/rawjson"
	"carryover/upstream"
)

// tokens is what one attempt knows of its prompt as token ids. The zero value is
// an attempt that takes no part in the token proof.
type tokens struct {
	wanted bool   // a ticket of this attempt can be proven: both engines use forwarded ids
	why    string // else the cause, if it would take part

	prompt *convcache.IDs // the ids that were compared with branches
	ids    []uint32       // the ids that prefill computed; before it answered, those it must compute
	raw    []byte         // the same as JSON
	sent   bool           // the prefill leg carried them
	parity *parity        // what is being learnt of /tokenize, nil if nothing
}

// lost ends an attempt's part in the token proof.
func (k *tokens) lost(why string) { k.wanted, k.why = false, why }

// tokensOf finds out whether this attempt can take part in the token proof. Each
// start of an engine is asked once whether it uses forwarded ids on chat; for text
// completions the ids are the prompt, which every engine takes.
func (s *Server) tokensOf(ctx context.Context, t *turn, p *pair) tokens {
	if !t.takesPart() || t.proof != ProofAuto || p.prefill == nil {
		return tokens{}
	}
	k := tokens{wanted: true}
	if p.barred {
		k.lost(whyBarred)
		return k
	}
	why := s.worth(ctx, t, p.prefill, p.starts.prefill)
	if why == "" {
		why = s.worth(ctx, t, p.decode, p.starts.decode)
	}
	if why != "" {
		k.lost(why)
	}
	return k
}

// worth says why one engine of a pair can't take part, "" if it can.
func (s *Server) worth(ctx context.Context, t *turn, instance *upstream.Instance, facts upstream.Facts) (why string) {
	switch {
	case facts.Incarnation == "":
		why = whyStart
	case t.api == upstream.Chat && s.deps.Capability.Probe(ctx, instance, facts.Incarnation, t.authorization) != upstream.Yes:
		why = whyProbe
	default:
		return ""
	}
	s.verdicts.note(instance, facts.Incarnation, why)
	return why
}

// knownToUseIDs reports, without asking, whether a leg to an instance may carry ids.
func (s *Server) knownToUseIDs(t *turn, instance *upstream.Instance, facts upstream.Facts) bool {
	return t.api == upstream.Text || s.deps.Capability.Known(instance, facts.Incarnation) == upstream.Yes
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
	if t.shape == "" {
		return ReasonNotComparable
	}
	if s.deps.Parity.Known(p.prefill, p.starts.prefill.Incarnation, t.model, t.shape) != upstream.Trusted {
		return lacks(whyShape)
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
	k.ids, k.raw = ids, rawjson.AppendIDs(nil, ids)
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

// receiptOf checks prefill's answer. With ids sent, ours or the client's prompt, it must
// repeat them; without, it tells what it rendered, which decode is to use.
func (s *Server) receiptOf(t *turn, p *pair, answer upstream.PrefillAnswer) error {
	k := &t.tokens
	switch {
	case !k.wanted:
		return nil
	case k.sent && !rawjson.EqualIDs(answer.PromptIDs, k.ids):
		return s.receiptFailed(t, p)
	case k.sent:
		return nil
	}
	ids, ok := rawjson.ParseIDs(answer.PromptIDs)
	if !ok { // an engine that does not tell; nothing can be proven later
		k.lost(whyIDs)
		s.verdicts.note(p.prefill, p.starts.prefill.Incarnation, whyIDs)
		return nil
	}
	if t.promptDiffers(ids) {
		return s.receiptFailed(t, p)
	}
	k.ids, k.raw = ids, answer.PromptIDs
	if t.api == upstream.Chat { // of a text completion's engines less is asked
		s.verdicts.note(p.prefill, p.starts.prefill.Incarnation, "")
		s.verdicts.note(p.decode, p.starts.decode.Incarnation, "")
	}
	return nil
}

// promptDiffers reports whether the client's prompt is a list of ids, and not this one.
// Of a list that only engines can read, as one with 1.0 in it, nothing is said.
func (t *turn) promptDiffers(ids []uint32) bool {
	if _, raw := t.req.Prompt(); rawjson.EqualIDs(raw, ids) {
		return false
	}
	_, readable := t.req.PromptIDs()
	return readable
}

func (s *Server) receiptFailed(t *turn, p *pair) error {
	s.bar(t, p)
	return &upstream.LegError{Role: upstream.RolePrefill, Instance: p.prefill.Name, Kind: upstream.Receipt, Sent: true, Err: errReceipt}
}
