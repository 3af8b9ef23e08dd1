package reuse

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/request"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Found is what the store has of a conversation, as a turn last saw it.
type Found struct {
	Branches []convcache.KeyedBranch // the tickets, those of the first key first and the newest of a key first
	Notes    []convcache.KeyedBranch // in the same order, the parts of the conversation that were handed back to prefill
	outcome  convcache.Outcome       // of the last look; Empty if the turn did not ask

	byContent bool                    // the branches were found by content, so that they may be of others who began alike
	foreign   bool                    // the id has tickets, none of which the request continues: they are of other conversations
	name      string                  // what is wrong with the conversation's id, "" if that is not known
	aliases   []convcache.KeyedBranch // those that have led to some of the branches
	dropped   bool                    // the last look gave up what is of another epoch
	taken     *convcache.KeyedBranch  // the one of the branches whose ticket the turn has taken, nil if none
	shown
}

// shown is what all looks of a turn have shown.
type shown struct {
	waited    time.Duration // for hand-backs
	learnt    bool          // the learner of continuations knows of the turn
	continues bool          // the store has, or had until its time was over, something of the conversation
	released  bool          // the answer that the turn continues was released at once
}

// Look asks the store for the conversation's tickets. It runs before a pair is picked, so that the routing policies know where the KV is.
// A turn that can use no ticket does not ask, and keeps what its last look has seen.
func (t *Tickets) Look(ctx context.Context, a *Admitted, parsed *body.Request, f Found, without bool) Found {
	keys := a.Keys()
	if a.proof == nil || len(keys) == 0 || without {
		f.outcome = convcache.Empty
	} else {
		f = t.look(ctx, a, keys, a.Conversation.ByContent(), f.shown)
		if content := a.ContentKeys(); len(content) > 0 && f.empty() && f.outcome != convcache.Unavailable {
			found := t.look(ctx, a, content, true, f.shown)
			if f.shown = found.shown; !found.empty() {
				f = found
			}
		}
		f.continues = f.continues || f.outcome == convcache.Found || f.outcome == convcache.Expired
	}
	if !f.learnt && len(keys) > 0 {
		f.learnt, f.released = true, t.learn(a, parsed, &f)
	}
	return f
}

// learn tells once for each turn that it may continue an answer, whether it uses a ticket or not, and reports whether the answer's ticket was
// released at once. Of a request that an id has not found, the answer may wait under the id of the turn before.
func (t *Tickets) learn(a *Admitted, parsed *body.Request, f *Found) (released bool) {
	c := &a.Conversation
	turn := continuation.Turn{Key: c.Home(), Earlier: c.Earlier, Explicit: !c.ByContent(), Found: !f.empty()}
	if a.API == body.Text && c.ByContent() {
		turn.GoesOn = parsed.Prompt().GoesOn()
	}
	if f.byContent {
		turn.Earlier = slices.Clip(turn.Earlier)
		for i := range f.Branches {
			turn.Earlier = append(turn.Earlier, f.Branches[i].Key)
		}
	}
	_, _, released = t.deps.Pins.Continuations.Asked(turn, a.began)
	return released
}

// look asks the store once, and once more where aliases lead.
func (t *Tickets) look(ctx context.Context, a *Admitted, keys []convcache.Key, byContent bool, so shown) Found {
	f := Found{byContent: byContent, shown: so}
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

// peek looks keys up, behind hand-backs that are under way, and sorts what the store has into f. It gives up what is of another epoch: decode
// frees the blocks of tickets, and notes are forgotten.
func (t *Tickets) peek(ctx context.Context, a *Admitted, keys []convcache.Key, f *Found) convcache.Outcome {
	f.waited = t.deps.Pins.Await(ctx, keys, f.waited)
	bounded, cancel := t.bounded(ctx)
	defer cancel()
	all, outcome := t.deps.Store.Peek(bounded, keys)
	if f.Branches == nil {
		f.Branches = all[:0] // which has room for all of them
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

// empty reports whether nothing of the conversation was found.
func (f *Found) empty() bool { return len(f.Branches)+len(f.Notes) == 0 }

// allHandedBack reports whether everything that the store has of the conversation was handed back to prefill.
func (f *Found) allHandedBack() bool {
	return len(f.Notes) > 0 && len(f.Branches) == 0 && !f.dropped
}

// home returns the key under which the turn's ticket is stored. An id whose tickets are of others counts as none.
func (f *Found) home(c *request.Conversation) convcache.Key {
	if f.foreign {
		return c.Content[0]
	}
	return c.Home()
}

// leadingTo lists the aliases that have led to a key.
func (f *Found) leadingTo(key convcache.Key) []convcache.KeyedBranch {
	return slices.DeleteFunc(slices.Clone(f.aliases), func(b convcache.KeyedBranch) bool {
		home, _ := b.Home()
		return home != key
	})
}

// needsAlias reports whether the home of the turn's ticket needs an alias under the key by content. While the id finds tickets, one turn in so
// many leaves one as a look-up by content has keys of turns before.
func (f *Found) needsAlias(c *request.Conversation) bool {
	foundByID := f.taken != nil && !f.byContent
	return len(c.Content) > 0 && !f.foreign && (!foundByID || c.Answers%body.MaxEarlier == 0)
}

// outdatedBy returns the branches under other keys that a ticket under this key makes superfluous. Those under its own key the put has
// displaced. A branch of another conversation that began alike may be among them: prefill has just computed all that it covers.
func (f *Found) outdatedBy(ticket *convcache.Ticket, key convcache.Key) (outdated []convcache.KeyedBranch) {
	for i := range f.Branches {
		if b := &f.Branches[i]; b.Key != key && b != f.taken && ticket.Displaces(&b.Branch) {
			outdated = append(outdated, *b)
		}
	}
	return outdated
}

// Hint tells the routing policies how many tokens of the conversation each incarnation of decode holds, and to which prefix caches it was handed
// back. owned are those of decode's that are certainly of this conversation, as far as outlines tell, and not of another that began alike.
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
