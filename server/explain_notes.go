package server

import (
	"time"

	"carryover/upstream"
)

// asksCache: what prefill's cache still has of a conversation that was handed back.
const asksCache = "cache"

// NoteAhead says that the conversation was handed back.
type NoteAhead struct {
	Age    float64 `json:"age_s"` // of the answer
	Tokens int     `json:"tokens"`
	// Prefill is the instance that has read them; Current, whether it is still in the start that did, as far as was read last.
	Prefill string `json:"prefill"`
	Current bool   `json:"prefill_start_current"`
}

// listNotes describes what of the conversation was handed back, the newest first.
func (f *finder) listNotes(t *turn) (notes []NoteAhead) {
	now := time.Now()
	for i := range t.notes {
		n := &t.notes[i]
		ahead := NoteAhead{Age: max(0, upstream.Elapsed(n.FreshAsOf, now).Seconds()), Tokens: n.Tokens, Prefill: n.Prefill}
		if engine := f.deps.Fleet.Engine(upstream.RolePrefill, n.Prefill); engine != nil {
			last := engine.Last()
			ahead.Current = last.Known() && last.ID() == n.PrefillIncarnation
		}
		notes = append(notes, ahead)
	}
	return notes
}
