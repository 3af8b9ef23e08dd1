package reuse

import (
	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// proofEngine names the proof of a turn that reuses handed-back KV without a ticket: prefill's own prefix cache compares the tokens.
const proofEngine = "engine"

// sharedPrefixTokens returns how many tokens prefill's caches had of the conversation's first turn, as far as that is known. They are the
// prefix that conversations share, such as a system prompt.
func (p *Proving) sharedPrefixTokens(looked *Lookup) (tokens int) {
	for _, known := range [...][]convcache.KeyedBranch{looked.Branches, looked.Notes} {
		for i := range known {
			tokens = max(tokens, known[i].SharedPrefixTokens)
		}
	}
	if len(looked.Branches)+len(looked.Notes) == 0 && !p.request.Length.Answered {
		tokens = max(p.record.Reuse().Cached, 0)
	}
	return tokens
}

// handedBackTo returns how many tokens of the conversation were handed back to an incarnation of prefill.
func (l *Lookup) handedBackTo(prefill *fleet.Incarnation) (tokens int) {
	for i := range l.Notes {
		if n := &l.Notes[i]; n.Prefill.Instance == prefill.Engine().Name && n.Prefill.Incarnation == prefill.ID() {
			tokens = max(tokens, n.Tokens)
		}
	}
	return tokens
}

// foundByEngine records what prefill's own caches were worth to a turn whose conversation was handed back, once prefill has answered
// without a ticket: what it found beyond what a first turn finds. same says that it is the engine that has answered in this incarnation before.
// Notes of others who began alike say nothing of prefill's cache: a client of such prompts must not end the hand-backs of others.
func (h *Claim) foundByEngine(prefill *fleet.Incarnation, same bool) {
	notes := h.looked.Notes
	if len(notes) == 0 || h.Ticket != nil {
		return
	}
	r := h.of.record.Reuse()
	defer func() { h.of.record.Reuses(r) }()
	newest, here := &notes[0], same && h.looked.handedBackTo(prefill) > 0
	if beyond := r.Cached - h.of.sharedPrefixTokens(h.looked); beyond > 0 {
		r.Hit, r.Reason, r.Differs, r.Proof, r.Offered, r.FreshAsOf = true, "", "", proofEngine, beyond, newest.FreshAsOf
		if here {
			prefill.PrefixCache.HandedBackFound(true)
		}
		return
	}
	if !h.looked.AllHandedBack() || r.Cached < 0 {
		return
	}
	of, certain := h.of.request, !h.of.request.Conversation.ByContent() // that the notes are of this conversation
	if !certain && of.API == body.Text {
		r.Reason = h.of.missed(convcache.Empty)
		return
	}
	for i := range notes {
		// In a text it can't be seen whether the last piece differs or goes on.
		d := h.finder.outlines.Compare(notes[i].Key, notes[i].ID, h.of.outline)
		if d.Position != "" && !d.Assumed && of.API != body.Text {
			r.Reason, r.Differs = record.ReasonRewritten, d.Position
			return
		}
		certain = certain || d.Assumed
	}
	r.Reason = record.ReasonHandedBackElsewhere
	if here {
		r.Reason = record.ReasonHandedBackEvicted
		if certain {
			prefill.PrefixCache.HandedBackFound(false)
		}
	}
}
