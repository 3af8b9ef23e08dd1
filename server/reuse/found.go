package reuse

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/record"
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
	aliases   []convcache.KeyedBranch // those that have led to some of the branches
	dropped   record.Reason           // why the last look gave tickets up, "" if it gave up none
	taken     convcache.KeyedBranch   // the ticket that the turn has taken, zero if none
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
func (t *Tickets) Look(ctx context.Context, a *Admitted, parsed *body.Request, last Found, without bool) Found {
	if keys := a.Keys(); a.proof == nil || len(keys) == 0 || without {
		last.outcome = convcache.Empty
	} else {
		byID := t.look(ctx, a, keys, a.Conversation.ByContent(), &last.shown)
		if keys = a.ContentKeys(); len(keys) > 0 && byID.empty() && byID.outcome != convcache.Unavailable {
			if found := t.look(ctx, a, keys, true, &last.shown); !found.empty() {
				byID = found
			}
		}
		byID.shown = last.shown
		byID.continues = last.continues || byID.outcome == convcache.Found || byID.outcome == convcache.Expired
		last = byID
	}
	if !last.learnt {
		last.learnt, last.released = true, t.learn(a, parsed, &last)
	}
	return last
}

// learn tells once for each turn that it may continue an answer, whether it uses a ticket or not, and reports whether the answer's ticket was
// released at once. A request by content that has no answer in it opens its conversation. Of one that an id has not found, the answer may
// wait under the id of the turn before.
func (t *Tickets) learn(a *Admitted, parsed *body.Request, found *Found) (released bool) {
	c := &a.Conversation
	if !c.Known || !a.kind.Explicit && !a.kind.FollowUp && a.API != body.Text {
		return false
	}
	turn := continuation.Turn{Key: c.Home(), Earlier: c.Earlier, Explicit: a.kind.Explicit, Found: !found.empty()}
	if a.API == body.Text && c.ByContent() {
		turn.GoesOn = parsed.Prompt().GoesOn()
	}
	if found.byContent {
		turn.Earlier = slices.Clip(turn.Earlier)
		for i := range found.Branches {
			turn.Earlier = append(turn.Earlier, found.Branches[i].Key)
		}
	}
	_, _, released = t.deps.Pins.Continuations.Asked(turn, a.began)
	return released
}

// look asks the store once, and once more where aliases lead.
func (t *Tickets) look(ctx context.Context, a *Admitted, keys []convcache.Key, byContent bool, shown *shown) Found {
	f := Found{byContent: byContent}
	f.outcome = t.peek(ctx, a, keys, &f, shown)
	var homes []convcache.Key
	for i := range f.aliases {
		if home, _ := f.aliases[i].Home(); !slices.Contains(homes, home) {
			homes = append(homes, home)
		}
	}
	for some := range slices.Chunk(homes, convcache.MaxKeys) {
		if there := t.peek(ctx, a, some, &f, shown); f.empty() && f.dropped == "" {
			f.outcome = there
		}
	}
	return f
}

// peek looks keys up, behind hand-backs that are under way, and sorts what the store has into f. It gives up what is of another epoch: decode
// frees the blocks of tickets, and notes are forgotten.
func (t *Tickets) peek(ctx context.Context, a *Admitted, keys []convcache.Key, f *Found, shown *shown) convcache.Outcome {
	shown.waited = t.deps.Pins.Await(ctx, keys, shown.waited)
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
			f.dropped = record.ReasonQuarantined
			t.giveUp(ctx, []convcache.KeyedBranch{b}, a.Model)
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
	return len(f.Notes) > 0 && len(f.Branches) == 0 && f.dropped == ""
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

// needsAlias returns the key by content under which home needs an alias. While the id finds tickets, one turn in so many leaves one as a
// look-up by content has keys of turns before.
func (f *Found) needsAlias(c *request.Conversation, home convcache.Key) (key convcache.Key, due bool) {
	if len(c.Content) == 0 || home == c.Content[0] {
		return key, false
	}
	foundByID := f.taken.ID != convcache.TicketID{} && !f.byContent
	return c.Content[0], !foundByID || c.Answers%body.MaxEarlier == 0
}

// outdatedBy returns the branches under other keys that a ticket under this key makes superfluous. Those under its own key the put has
// displaced. A branch of another conversation that began alike may be among them: prefill has just computed all that it covers.
func (f *Found) outdatedBy(ticket *convcache.Ticket, key convcache.Key) (outdated []convcache.KeyedBranch) {
	for i := range f.Branches {
		if b := &f.Branches[i]; b.Key != key && b.ID != f.taken.ID && ticket.Displaces(&b.Branch) {
			outdated = append(outdated, *b)
		}
	}
	return outdated
}

// Holdings tells the routing policies how many tokens of the conversation each incarnation of decode holds. owned are those of them that are
// certainly of this conversation, as far as outlines tell, and not of another that began alike.
func (f *Found) Holdings(a *Admitted) (holds, owned []fleet.Holding) {
	if len(f.Branches) == 0 {
		return nil, nil
	}
	holds = make([]fleet.Holding, len(f.Branches))
	for i := range f.Branches {
		b := &f.Branches[i]
		holds[i] = fleet.Holding{Instance: b.Decode.Instance, Incarnation: b.Decode.Incarnation, Tokens: b.Tokens}
		if f.byContent && a.outline.mayContinue(&b.Branch) {
			owned = append(owned, holds[i])
		}
	}
	if !f.byContent {
		owned = holds
	}
	return holds, owned
}

// PrefixHints tells the routing policies to which prefix caches the conversation was handed back.
func (f *Found) PrefixHints() (hints []fleet.Holding) {
	for i := range f.Notes {
		n := &f.Notes[i]
		hints = append(hints, fleet.Holding{Instance: n.Prefill.Instance, Incarnation: n.Prefill.Incarnation, Tokens: n.Tokens})
	}
	return hints
}
