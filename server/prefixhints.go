package server

import (
	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// proofEngine is the proof of a turn that sends no ticket: prefill's own prefix cache compares tokens.
const proofEngine = "engine"

// sort tells the tickets of a conversation from its notes.
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

// allHandedBack reports whether all that is known of the conversation is prefill's.
func (t *turn) allHandedBack() bool {
	return len(t.notes) > 0 && len(t.branches) == 0 && t.dropped == ""
}

// prefixHints tells the policies to which prefix caches the conversation was handed back.
func (t *turn) prefixHints() (notes []fleet.PrefixHint) {
	for i := range t.notes {
		n := &t.notes[i]
		notes = append(notes, fleet.PrefixHint{Prefill: n.Prefill, Incarnation: n.PrefillIncarnation, Tokens: n.Tokens})
	}
	return notes
}

// sharedPrefixTokens is how many tokens prefill's caches have had for the first turn of the conversation, as far as that is known.
func (t *turn) sharedPrefixTokens() (tokens int) {
	for _, known := range [...][]convcache.Branch{t.branches, t.notes} {
		for i := range known {
			tokens = max(tokens, known[i].SharedPrefixTokens)
		}
	}
	if len(t.branches)+len(t.notes) == 0 && !t.length.Answered {
		tokens = max(t.record.Reuse.Cached, 0)
	}
	return tokens
}

// foundByEngine says what prefill's own caches were worth to a turn whose conversation was handed back, once prefill has answered
// without a ticket: what it found beyond what a first turn finds. same says that it is the engine that has answered in this start before.
func (f *finder) foundByEngine(t *turn, prefill *fleet.Incarnation, h *claim, same bool) {
	r := &t.record.Reuse
	if len(t.notes) == 0 || h.ticket != nil {
		return
	}
	newest, here := &t.notes[0], false
	for i := range t.notes {
		here = here || same && t.notes[i].Prefill == prefill.Engine().Name && t.notes[i].PrefillIncarnation == prefill.ID()
	}
	if beyond := r.Cached - t.sharedPrefixTokens(); beyond > 0 {
		r.Hit, r.Reason, r.Differs, r.Proof, r.Offered, r.FreshAsOf = true, "", "", proofEngine, beyond, newest.FreshAsOf
		if here {
			prefill.HandedBackFound(true)
		}
		return
	}
	if !t.allHandedBack() || r.Cached < 0 {
		return
	}
	for i := range t.notes {
		// Of a text it does not show whether its last piece is another, or goes on.
		if d := f.outlines.Compare(t.conversation.key, t.notes[i].ID, t.outline); d.Position != "" && !d.Assumed && t.api != upstream.Text {
			r.Reason, r.Differs = ReasonRewritten, d.Position
			return
		}
	}
	r.Reason = ReasonHandedBackElsewhere
	if here {
		r.Reason = ReasonHandedBackEvicted
		prefill.HandedBackFound(false)
	}
}

// discard gives back the memory of ids that the attempt has kept for a hand-back which does not come.
func (t *turn) discard() { t.ids.Discard() }
