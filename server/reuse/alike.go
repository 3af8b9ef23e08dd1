package reuse

import (
	"slices"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream/body"
)

// Conversations without ids share keys while they are alike: chats that begin with the same words, completions of one template. The proof
// keeps their tokens apart. The rules of this file keep a turn from consuming a ticket that serves only another conversation, and from
// counting another's tickets and notes as its own.

// leavesToOthers returns why a turn that has found a ticket by content leaves it where it would be cut, "" if it may use it: the
// ticket's own next turn would find it gone. One that an alias has led to is left, because its id will find it. A chat leaves one of several under its key that is known to be of another prompt. A text
// leaves one if whole blocks of the ticket's prompt are not offered, since the two share a template and no history.
func (f *Finder) leavesToOthers(p *Proving, looked *Lookup, c choice) record.Reason {
	if !looked.byContent || c.offer.Whole {
		return ""
	}
	if len(looked.leadingTo(c.branch.Key)) > 0 {
		return record.ReasonNothingStored
	}
	if p.request.API == body.Text {
		for _, has := range c.branch.Prefilled {
			if has.Tokens >= c.offer.Tokens+max(1, c.branch.Chain.BlockSize) {
				return record.ReasonRewritten
			}
		}
		return ""
	}
	alike := func(b convcache.KeyedBranch) bool { return b.Key == c.branch.Key && b.ID != c.branch.ID }
	if p.anothers(&c.branch.Branch) && slices.ContainsFunc(looked.Branches, alike) {
		return record.ReasonNothingStored
	}
	return ""
}

// anothers reports whether a ticket or a note is known to be of a chat whose history differs before the answer. In a text it can't be seen
// whether the last piece differs or goes on.
func (p *Proving) anothers(b *convcache.Branch) bool {
	return p.request.API != body.Text && p.outline.leaves(b)
}

// doubtful lists the tickets that may be of another conversation, as far as outlines tell: none if they were found by an id.
func (p *Proving) doubtful(looked *Lookup) (doubtful []convcache.TicketID) {
	if !looked.byContent {
		return nil
	}
	for i := range looked.Branches {
		if b := &looked.Branches[i]; !p.outline.mayContinue(&b.Branch) {
			doubtful = append(doubtful, b.ID)
		}
	}
	return doubtful
}

// expected returns how many tokens prefill has to find so that something of what was handed back is among them: more than it has of prompts
// that conversations share. If all notes are those of others who began alike, it must be more than prefill had of their prompts, too.
func (c *Claim) expected(own int) int {
	others := func(b convcache.KeyedBranch) bool {
		return c.of.anothers(&b.Branch) || c.of.request.API == body.Text
	}
	if c.looked.byContent && !slices.ContainsFunc(c.looked.Notes, func(b convcache.KeyedBranch) bool { return !others(b) }) {
		return own
	}
	return c.of.sharedPrefixTokens(c.looked)
}

// lacksOwn reports whether prefill lacks what was certainly handed back for this very conversation. By content that is certain of a
// chat with one note, which nothing but the answer can tell from this conversation's, if prefill lacks even tokens that precede the answer.
func (c *Claim) lacksOwn(own int) bool {
	if !c.looked.byContent {
		return true
	}
	notes := c.looked.Notes
	return len(notes) == 1 && c.of.request.API != body.Text && c.of.record.Reuse().Cached < own &&
		c.of.outline.mayContinue(&notes[0].Branch)
}
