package reuse

import (
	"context"
	"slices"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/storetime"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Lookup is what the store has of a conversation, as a turn last saw it.
type Lookup struct {
	Branches []convcache.KeyedBranch // the tickets, those of the first key first and the newest of a key first
	Notes    []convcache.KeyedBranch // in the same order, the parts of the conversation that were handed back to prefill
	Outcome  convcache.Outcome       // of the last look; Empty if the turn did not ask

	byContent bool                    // the branches were found by content, so that they may be of others who began alike
	foreign   bool                    // the id has tickets, none of which the request continues: they are of other conversations
	aliases   []convcache.KeyedBranch // those that have led to some of the branches

	dropped  record.Reason         // why the last look gave tickets up, "" if it gave up none
	taken    convcache.KeyedBranch // the ticket that the turn has taken, zero if none
	doubtful []convcache.TicketID  // tickets that may be of other conversations which began alike
}

// Look asks the store for the conversation's tickets. It runs before a pair is picked, so that the routing policies know where the KV is.
// A turn that can use no ticket does not ask, and keeps what its last look has seen.
func (f *Finder) Look(ctx context.Context, p *Proving, last Lookup) Lookup {
	keys := p.request.Keys()
	if p.proof == nil || len(keys) == 0 || p.Without != "" {
		f.learn(p, &Lookup{})
		last.Outcome = convcache.Empty
		return last
	}
	looked := f.look(ctx, p, keys, p.request.Conversation.ByContent())
	if keys = p.request.ContentKeys(); len(keys) > 0 && looked.empty() && looked.Outcome != convcache.Unavailable {
		if found := f.look(ctx, p, keys, true); !found.empty() {
			looked = found
		}
	}
	f.learn(p, &looked)
	if looked.Outcome == convcache.Found || looked.Outcome == convcache.Expired {
		r := p.record.Reuse()
		r.Continues = true
		p.record.Reuses(r)
	}
	return looked
}

// look asks the store once, and once more where aliases lead.
func (f *Finder) look(ctx context.Context, p *Proving, keys []convcache.Key, byContent bool) Lookup {
	looked := sorted(f.peek(ctx, p, keys))
	looked.byContent = byContent
	for homes := range slices.Chunk(looked.homes(), convcache.MaxKeys) {
		there := sorted(f.peek(ctx, p, homes))
		if looked.Branches, looked.Notes = append(looked.Branches, there.Branches...), append(looked.Notes, there.Notes...); looked.empty() {
			looked.Outcome = there.Outcome
		}
	}
	f.dropOlder(ctx, p.request, &looked)
	looked.doubtful = p.doubtful(&looked)
	return looked
}

// peek looks keys up, behind hand-backs that are under way.
func (f *Finder) peek(ctx context.Context, p *Proving, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	p.waited = f.deps.Pins.HandBacks.Await(ctx, keys, p.waited)
	bounded, cancel := storetime.Limit(ctx, f.cfg.StoreTimeout)
	defer cancel()
	return f.deps.Store.Peek(bounded, keys)
}

// empty reports whether nothing of the conversation was found.
func (l *Lookup) empty() bool { return len(l.Branches)+len(l.Notes) == 0 }

// home returns the key under which the turn's ticket is stored. An id whose tickets are of others counts as none.
func (l *Lookup) home(c *request.Conversation) convcache.Key {
	if l.foreign {
		return c.Content[0]
	}
	return c.Home()
}

// homes lists where the aliases lead, each home once.
func (l *Lookup) homes() (homes []convcache.Key) {
	for i := range l.aliases {
		if home, _ := l.aliases[i].Home(); !slices.Contains(homes, home) {
			homes = append(homes, home)
		}
	}
	return homes
}

// leadingTo lists the aliases that have led to a key.
func (l *Lookup) leadingTo(key convcache.Key) []convcache.KeyedBranch {
	return slices.DeleteFunc(slices.Clone(l.aliases), func(b convcache.KeyedBranch) bool {
		home, _ := b.Home()
		return home != key
	})
}

// needsAlias returns the key by content under which home needs an alias. While the id finds tickets, one turn in so many leaves one as a
// look-up by content has keys of turns before.
func (l *Lookup) needsAlias(c *request.Conversation, home convcache.Key) (key convcache.Key, due bool) {
	if len(c.Content) == 0 || home == c.Content[0] {
		return key, false
	}
	foundByID := l.taken.ID != convcache.TicketID{} && !l.byContent
	return c.Content[0], !foundByID || c.Answers%body.MaxEarlier == 0
}

// sorted divides what the store has of a conversation into tickets, notes and aliases.
func sorted(all []convcache.KeyedBranch, outcome convcache.Outcome) Lookup {
	looked := Lookup{Branches: all, Outcome: outcome}
	for i := range all {
		if all[i].HandedBack() {
			looked.Branches = make([]convcache.KeyedBranch, 0, len(all))
			for _, b := range all {
				looked.add(b)
			}
			break
		}
	}
	return looked
}

func (l *Lookup) add(b convcache.KeyedBranch) {
	_, alias := b.Home()
	switch {
	case alias:
		l.aliases = append(l.aliases, b)
	case b.HandedBack():
		l.Notes = append(l.Notes, b)
	default:
		l.Branches = append(l.Branches, b)
	}
}

// AllHandedBack reports whether everything that the store has of the conversation was handed back to prefill.
func (l *Lookup) AllHandedBack() bool {
	return len(l.Notes) > 0 && len(l.Branches) == 0 && l.dropped == ""
}

// outdatedBy returns the branches under other keys that a ticket under this key makes superfluous. Those under its own key the put has
// displaced. A branch of another conversation that began alike may be among them: prefill has just computed all that it covers.
func (l *Lookup) outdatedBy(ticket *convcache.Ticket, key convcache.Key) (outdated []convcache.KeyedBranch) {
	for i := range l.Branches {
		if b := &l.Branches[i]; b.Key != key && b.ID != l.taken.ID && ticket.Displaces(&b.Branch) {
			outdated = append(outdated, *b)
		}
	}
	return outdated
}

// Holdings tells the routing policies how many tokens of the conversation each incarnation of decode holds.
func (l *Lookup) Holdings() (holds []fleet.Holding) {
	if len(l.Branches) > 0 {
		holds = make([]fleet.Holding, len(l.Branches))
	}
	for i := range l.Branches {
		b := &l.Branches[i]
		holds[i] = fleet.Holding{Instance: b.Decode.Instance, Incarnation: b.Decode.Incarnation, Tokens: b.Tokens}
	}
	return holds
}

// Owned returns the holdings that are certainly of this conversation, and not of another that began alike.
func (l *Lookup) Owned() (owned []fleet.Holding) {
	for i, holding := range l.Holdings() {
		if !slices.Contains(l.doubtful, l.Branches[i].ID) {
			owned = append(owned, holding)
		}
	}
	return owned
}

// PrefixHints tells the routing policies to which prefix caches the conversation was handed back.
func (l *Lookup) PrefixHints() (notes []fleet.Holding) {
	for i := range l.Notes {
		n := &l.Notes[i]
		notes = append(notes, fleet.Holding{Instance: n.Prefill.Instance, Incarnation: n.Prefill.Incarnation, Tokens: n.Tokens})
	}
	return notes
}

// Bytes returns the memory that hashes of the branches occupy.
func (l *Lookup) Bytes() (n int64) {
	for i := range l.Branches {
		n += 8 * int64(len(l.Branches[i].Chain.Blocks))
	}
	return n
}
