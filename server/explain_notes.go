package server

import (
	"time"

	"carryover/upstream"
)

// asksCache means that prefill has to show what its cache still holds of a conversation that was handed back.
const asksCache = "cache"

// NoteAhead is one hand-back of the conversation.
type NoteAhead struct {
	Age    float64 `json:"age_s"` // age of the answer
	Tokens int     `json:"tokens"`
	// Prefill is the instance that has read the tokens. Current says whether the instance, when it was last probed, was still the
	// incarnation that read them.
	Prefill string `json:"prefill"`
	Current bool   `json:"prefill_start_current"`
}

// listNotes describes the hand-backs of the conversation, the newest first.
func (f *finder) listNotes(t *turn) (notes []NoteAhead) {
	now := time.Now()
	for i := range t.notes {
		n := &t.notes[i]
		ahead := NoteAhead{Age: max(0, upstream.Elapsed(n.FreshAsOf, now).Seconds()), Tokens: n.Tokens, Prefill: n.Prefill.Instance}
		if engine := f.deps.Fleet.Engine(upstream.RolePrefill, n.Prefill.Instance); engine != nil {
			last := engine.Last()
			ahead.Current = last.Known() && last.ID() == n.Prefill.Incarnation
		}
		notes = append(notes, ahead)
	}
	return notes
}
