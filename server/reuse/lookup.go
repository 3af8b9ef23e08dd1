package reuse

import (
	"context"
	"slices"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream/fleet"
)

// Lookup is what the store has of a conversation, as a turn last saw it.
type Lookup struct {
	Branches []convcache.KeyedBranch // the tickets, those of the first key first and the newest of a key first
	Notes    []convcache.KeyedBranch // in the same order, the parts of the conversation that were handed back to prefill
	Outcome  convcache.Outcome       // of the last look; Empty if the turn did not ask

	dropped  record.Reason        // why the last look gave tickets up, "" if it gave up none
	taken    convcache.TicketID   // the ticket that the turn has taken, zero if none
	doubtful []convcache.TicketID // tickets that may be of other conversations which began alike
}

// Look asks the store for the conversation's tickets. It runs before a pair is picked, so that the routing policies know where the KV is.
// A turn that can use no ticket does not ask, and keeps what its last look has seen.
func (f *Finder) Look(ctx context.Context, p *Proving, last Lookup) Lookup {
	keys := p.request.Keys()
	if p.proof == nil || len(keys) == 0 || p.Without != "" {
		f.learn(p, false)
		last.Outcome = convcache.Empty
		return last
	}
	for _, key := range keys {
		f.deps.Pins.HandBacks.Await(ctx, key)
	}
	bounded, cancel := storetime.Limit(ctx, f.cfg.StoreTimeout)
	defer cancel()
	looked := sorted(f.deps.Store.Peek(bounded, keys))
	f.learn(p, len(looked.Branches)+len(looked.Notes) > 0)
	if looked.Outcome == convcache.Found || looked.Outcome == convcache.Expired {
		r := p.record.Reuse()
		r.Continues = true
		p.record.Reuses(r)
	}
	f.dropOlder(bounded, p.request, &looked)
	looked.doubtful = p.doubtful(looked.Branches)
	return looked
}

// sorted divides what the store has of a conversation into tickets and notes.
func sorted(all []convcache.KeyedBranch, outcome convcache.Outcome) Lookup {
	looked := Lookup{Branches: all, Outcome: outcome}
	for i := range all {
		if all[i].HandedBack() {
			looked.Branches = make([]convcache.KeyedBranch, 0, len(all))
			for _, b := range all {
				if b.HandedBack() {
					looked.Notes = append(looked.Notes, b)
				} else {
					looked.Branches = append(looked.Branches, b)
				}
			}
			break
		}
	}
	return looked
}

// AllHandedBack reports whether everything that the store has of the conversation was handed back to prefill.
func (l *Lookup) AllHandedBack() bool {
	return len(l.Notes) > 0 && len(l.Branches) == 0 && l.dropped == ""
}

// outdatedBy returns the branches under other keys that a ticket under this key makes superfluous. Those under its own key the put has
// displaced. A branch of another conversation that began alike may be among them: prefill has just computed all that it covers.
func (l *Lookup) outdatedBy(ticket *convcache.Ticket, key convcache.Key) (outdated []convcache.KeyedBranch) {
	for i := range l.Branches {
		if b := &l.Branches[i]; b.Key != key && b.ID != l.taken && ticket.Displaces(&b.Branch) {
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
		holds[i] = fleet.Holding{Decode: b.Decode.Instance, Incarnation: b.Decode.Incarnation, Tokens: b.Tokens}
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
func (l *Lookup) PrefixHints() (notes []fleet.PrefixHint) {
	for i := range l.Notes {
		n := &l.Notes[i]
		notes = append(notes, fleet.PrefixHint{Prefill: n.Prefill.Instance, Incarnation: n.Prefill.Incarnation, Tokens: n.Tokens})
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
