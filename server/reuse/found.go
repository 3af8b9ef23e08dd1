package reuse

import (
	"context"
	"slices"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/request"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Found is what the store has of a conversation, as a turn last saw it.
type Found struct {
	Branches []convcache.KeyedBranch // tickets, in the order of the keys and the newest of each key first
	Notes    []convcache.KeyedBranch // notes of KV that was handed back to prefill, in the same order
	outcome  convcache.Outcome       // of the last look-up; Empty if the turn did not ask

	byContent bool                    // the branches were found by content, so they may belong to other conversations that began alike
	foreign   bool                    // the id has tickets, but the request continues none: they belong to other conversations
	aliases   []convcache.KeyedBranch // led to some of the branches
	dropped   bool                    // the last look-up gave up branches of another epoch
	taken     *convcache.KeyedBranch  // the branch whose ticket the turn has taken, nil for none

	// What the look-ups of a turn have shown together.
	learnt    bool // the learner of continuations knows of the turn
	continues bool // the store has something of the conversation, or had until it expired
}

// Look looks up the conversation's tickets. It runs before a pair is picked, so that routing policies know where the KV is. A turn that can use no
// ticket does not ask, and keeps the result of its last look-up.
func (t *Tickets) Look(ctx context.Context, a *Admitted, parsed *body.Request, f Found, without bool) Found {
	keys := a.Keys()
	if a.proof == nil || len(keys) == 0 || without {
		f.outcome = convcache.Empty
	} else {
		before := f
		f = t.look(ctx, a, keys, a.Conversation.ByContent())
		if content := a.ContentKeys(); len(content) > 0 && f.empty() && f.outcome != convcache.Unavailable {
			if found := t.look(ctx, a, content, true); !found.empty() {
				f = found
			}
		}
		f.learnt, f.continues = before.learnt, before.continues || f.outcome == convcache.Found || f.outcome == convcache.Expired
	}
	if !f.learnt && len(keys) > 0 {
		f.learnt = true
		t.learn(a, parsed, &f)
	}
	return f
}

// learn reports a turn once to the learner of continuations, whether the turn uses a ticket or not. If the id has found nothing, the answer
// that the turn continues may wait under the id of the turn before.
func (t *Tickets) learn(a *Admitted, parsed *body.Request, f *Found) {
	c := &a.Conversation
	turn := continuation.Turn{Key: c.Home(), Earlier: c.Earlier, Explicit: !c.ByContent(), Found: !f.empty()}
	if a.API == body.Text && c.ByContent() {
		turn.GoesOn = parsed.Prompt().GoesOn()
	}
	turn.Earlier = slices.Clip(turn.Earlier)
	for i := range f.Branches {
		turn.Earlier = append(turn.Earlier, f.Branches[i].Key)
	}
	t.deps.Pins.Continuations.Asked(turn, a.began)
}

func (t *Tickets) look(ctx context.Context, a *Admitted, keys []convcache.Key, byContent bool) Found {
	f := Found{byContent: byContent}
	f.outcome = t.peek(ctx, a, keys, &f)
	var homes []convcache.Key
	for i := range f.aliases {
		if home, _ := f.aliases[i].Home(); !slices.Contains(homes, home) {
			homes = append(homes, home)
		}
	}
	for some := range slices.Chunk(homes, convcache.MaxKeys) {
		if there := t.peek(ctx, a, some, &f); f.empty() && !f.dropped {
			f.outcome = there
		}
	}
	return f
}

// peek looks keys up after their running hand-backs, and sorts the branches into f. It gives up branches of another epoch.
func (t *Tickets) peek(ctx context.Context, a *Admitted, keys []convcache.Key, f *Found) convcache.Outcome {
	t.deps.Pins.Await(ctx, keys)
	all, outcome := t.deps.Store.Peek(ctx, keys)
	if f.Branches == nil {
		f.Branches = all[:0] // has room for all of them
	}
	epoch := t.deps.Epoch.Now()
	for _, b := range all {
		_, alias := b.Home()
		switch {
		case alias:
			f.aliases = append(f.aliases, b)
		case b.Epoch != epoch:
			f.dropped = true
			t.deps.Pins.GiveUp(ctx, b.Key, b.ID, a.Model)
		case b.HandedBack():
			f.Notes = append(f.Notes, b)
		default:
			f.Branches = append(f.Branches, b)
		}
	}
	return outcome
}

func (f *Found) empty() bool { return len(f.Branches)+len(f.Notes) == 0 }

// allHandedBack reports whether all that the store has of the conversation was handed back to prefill.
func (f *Found) allHandedBack() bool {
	return len(f.Notes) > 0 && len(f.Branches) == 0 && !f.dropped
}

// home returns the key for the turn's ticket. An id whose tickets belong to other conversations does not count.
func (f *Found) home(c *request.Conversation) convcache.Key {
	if f.foreign {
		return c.Content[0]
	}
	return c.Home()
}

func (f *Found) leadingTo(key convcache.Key) []convcache.KeyedBranch {
	return slices.DeleteFunc(slices.Clone(f.aliases), func(b convcache.KeyedBranch) bool {
		home, _ := b.Home()
		return home != key
	})
}

// needsAlias reports whether the home of the turn's ticket needs an alias under the key by content. While the id finds tickets, only every
// [body.MaxEarlier]th turn leaves one: a look-up by content has the keys of that many earlier turns.
func (f *Found) needsAlias(c *request.Conversation) bool {
	foundByID := f.taken != nil && !f.byContent
	return len(c.Content) > 0 && !f.foreign && (!foundByID || c.Answers%body.MaxEarlier == 0)
}

// outdatedBy returns the branches under other keys that a ticket under this key makes superfluous. The put has displaced those under its own key. A
// branch may belong to another conversation that began alike: prefill has just computed all that it covers.
func (f *Found) outdatedBy(ticket *convcache.Ticket, key convcache.Key) (outdated []convcache.KeyedBranch) {
	for i := range f.Branches {
		if b := &f.Branches[i]; b.Key != key && b != f.taken && ticket.Displaces(&b.Branch) {
			outdated = append(outdated, *b)
		}
	}
	return outdated
}

// Hint tells the routing policies what each incarnation of decode holds of the conversation, and which prefix caches have handed-back KV. owned are
// decode's holdings that certainly belong to this conversation, as far as outlines tell, and not to another that began alike.
func (f *Found) Hint(a *Admitted) (hint fleet.Hint, owned []fleet.Holding) {
	hint.Key, hint.Model = a.Conversation.Affinity, a.Model
	for i := range f.Branches {
		b := &f.Branches[i]
		hint.Holds = append(hint.Holds, holding(b.Decode, b.Tokens))
		if f.byContent && a.agrees(b) == len(b.Outline) {
			owned = append(owned, hint.Holds[i])
		}
	}
	if !f.byContent {
		owned = hint.Holds
	}
	for i := range f.Notes {
		hint.PrefixHints = append(hint.PrefixHints, holding(f.Notes[i].Prefill, f.Notes[i].Tokens))
	}
	return hint, owned
}

func holding(by convcache.Holder, tokens int) fleet.Holding {
	return fleet.Holding{Instance: by.Instance, Incarnation: by.Incarnation, Tokens: tokens}
}
