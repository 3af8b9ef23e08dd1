package server

import (
	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// proofEngine names the proof of a turn that reuses handed-back KV without a ticket: prefill's own prefix cache compares the tokens.
const proofEngine = "engine"

// sort divides what the store has of a conversation into tickets and notes.
func (t *turn) sort(all []convcache.Branch) {
	t.branches, t.notes = all, nil
	for i := range all {
		if all[i].HandedBack() {
			t.branches = make([]convcache.Branch, 0, len(all))
			for _, b := range all {
				if b.HandedBack() {
					t.notes = append(t.notes, b)
				} else {
					t.branches = append(t.branches, b)
				}
			}
			return
		}
	}
}

// allHandedBack reports whether everything that the store has of the conversation was handed back to prefill.
func (t *turn) allHandedBack() bool {
	return len(t.notes) > 0 && len(t.branches) == 0 && t.dropped == ""
}

// prefixHints tells the routing policies to which prefix caches the conversation was handed back.
func (t *turn) prefixHints() (notes []fleet.PrefixHint) {
	for i := range t.notes {
		n := &t.notes[i]
		notes = append(notes, fleet.PrefixHint{Prefill: n.Prefill.Instance, Incarnation: n.Prefill.Incarnation, Tokens: n.Tokens})
	}
	return notes
}

// sharedPrefixTokens returns how many tokens prefill's caches had of the conversation's first turn, as far as that is known. They are the
// prefix that conversations share, such as a system prompt.
func (t *turn) sharedPrefixTokens() (tokens int) {
	for _, known := range [...][]convcache.Branch{t.branches, t.notes} {
		for i := range known {
			tokens = max(tokens, known[i].SharedPrefixTokens)
		}
	}
	if len(t.branches)+len(t.notes) == 0 && !t.Length.Answered {
		tokens = max(t.record.Reuse().Cached, 0)
	}
	return tokens
}

// foundByEngine says what prefill's own caches were worth to a turn whose conversation was handed back, once prefill has answered
// without a ticket: what it found beyond what a first turn finds. same says that it is the engine that has answered in this incarnation before.
func (f *finder) foundByEngine(t *turn, prefill *fleet.Incarnation, h *claim, same bool) {
	if len(t.notes) == 0 || h.Ticket != nil {
		return
	}
	r := t.record.Reuse()
	defer func() { t.record.Reuses(r) }()
	newest, here := &t.notes[0], false
	for i := range t.notes {
		here = here || same && t.notes[i].Prefill.Instance == prefill.Engine().Name && t.notes[i].Prefill.Incarnation == prefill.ID()
	}
	if beyond := r.Cached - t.sharedPrefixTokens(); beyond > 0 {
		r.Hit, r.Reason, r.Differs, r.Proof, r.Offered, r.FreshAsOf = true, "", "", proofEngine, beyond, newest.FreshAsOf
		if here {
			prefill.PrefixCache.HandedBackFound(true)
		}
		return
	}
	if !t.allHandedBack() || r.Cached < 0 {
		return
	}
	for i := range t.notes {
		// In a text it can't be seen whether the last piece differs or goes on.
		if d := f.outlines.Compare(t.Conversation.Key, t.notes[i].ID, t.outline); d.Position != "" && !d.Assumed && t.API != body.Text {
			r.Reason, r.Differs = record.ReasonRewritten, d.Position
			return
		}
	}
	r.Reason = record.ReasonHandedBackElsewhere
	if here {
		r.Reason = record.ReasonHandedBackEvicted
		prefill.PrefixCache.HandedBackFound(false)
	}
}

// discard frees the ids that the attempt has kept for a hand-back that will not happen.
func (t *turn) discard() { t.ids.Discard() }
