package explain

import (
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// NoteAhead is one hand-back of the conversation.
type NoteAhead struct {
	Age    float64 `json:"age_s"` // age of the answer
	Tokens int     `json:"tokens"`
	// Prefill is the instance that has read the tokens. Current says whether the instance, when it was last probed, was still the
	// incarnation that read them.
	Prefill string `json:"prefill"`
	Current bool   `json:"prefill_start_current"`
}

// listNotes describes the hand-backs of a conversation, the newest first.
func listNotes(engines *fleet.Fleet, of []convcache.KeyedBranch) (notes []NoteAhead) {
	now := time.Now()
	for i := range of {
		n := &of[i]
		ahead := NoteAhead{Age: max(0, upstream.Elapsed(n.FreshAsOf, now).Seconds()), Tokens: n.Tokens, Prefill: n.Prefill.Instance}
		if engine := engines.Engine(upstream.RolePrefill, n.Prefill.Instance); engine != nil {
			last := engine.Last()
			ahead.Current = last.Known() && last.ID() == n.Prefill.Incarnation
		}
		notes = append(notes, ahead)
	}
	return notes
}
