package reuse

import (
	"slices"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream/body"
)

// Choice is what an attempt reuses, as far as that is decided before its legs: how much of a ticket, or why nothing.
type Choice struct {
	branch  *convcache.KeyedBranch // that of the ticket, nil for a miss
	Offer   convcache.Offer        // how much of the ticket this request may use
	Why     string                 // of a miss, "" if a ticket is used
	Differs string                 // the part of the request from which on it differs from what was found, "" if that is not known
}

// excludes returns why an attempt uses no ticket, whatever the store has; "" if it may use one. without is why attempts before have ruled it
// out, "" if none has.
func (p *Proof) excludes(without string) string {
	switch {
	case p.Conversation.Off:
		return record.ReasonBypass
	case !p.Conversation.Known:
		return record.ReasonNoConversation
	case p.Ineligible != "":
		return "ineligible_" + p.Ineligible
	case p.Prefill == nil && !p.Quarantined:
		return record.ReasonBypass
	case without != "":
		return without
	case p.Quarantined:
		return record.ReasonQuarantined
	}
	return p.IDs.Unproven()
}

// rewritten reports whether a reason says that the history differs from a ticket's, or agrees with it for too few tokens.
func rewritten(why string) bool {
	return why == record.ReasonRewritten || why == record.ReasonBelowThreshold
}

// unstored returns the reason of a miss for which the store has nothing. silent says that decode's answers bring no params.
func (a *Admitted) unstored(silent bool) string {
	switch {
	case silent:
		return record.ReasonNoParams
	case a.API == body.Text, !a.Length.Answered: // a text prompt does not show that others came before
		return record.ReasonFirstTurn
	}
	return record.ReasonNothingStored
}

// missed returns the reason of a miss for an outcome of the store.
func missed(outcome convcache.Outcome) string {
	switch outcome {
	case convcache.Expired:
		return record.ReasonExpired
	case convcache.Consumed:
		return record.ReasonConsumed
	case convcache.Fenced:
		return record.ReasonStoreFailedOver
	}
	return record.ReasonStoreUnavailable
}

// choose lists the branches that the request may use, the one with most usable tokens first, and those that it leaves nevertheless, with the
// reason. Where they were found by content, branches of which it may use all come before others: a branch that would be cut may be of another
// conversation that began alike, and its own next turn would find it gone.
func (c *Config) choose(p *Proof, f *Found) (choices []Choice) {
	for i := range f.Branches {
		b := &f.Branches[i]
		if o := p.offers.Offer(b.Branch); o.Tokens > 0 {
			choices = append(choices, Choice{branch: b, Offer: o, Why: c.leaves(p, f, b, o)})
		}
	}
	slices.SortStableFunc(choices, func(a, b Choice) int {
		if f.byContent && a.Offer.Whole != b.Offer.Whole {
			if a.Offer.Whole {
				return -1
			}
			return 1
		}
		return b.Offer.Tokens - a.Offer.Tokens
	})
	return choices
}

// continues reports whether the request goes on where the first of its choices ends.
func continues(choices []Choice) bool { return len(choices) > 0 && choices[0].Offer.Whole }

// leaves returns why a request leaves a branch where it is, "" if it may use it. Conversations without ids share keys while they are alike:
// chats that begin with the same words, completions of one template. So where branches were found by content, a ticket that would be cut is
// left to its own conversation: one that an alias has led to, because its id will find it; of a chat, one of several under its key that is
// known to be of another prompt; of a text, one of whose prompt whole blocks are not offered, since the two share a template and no history.
func (c *Config) leaves(p *Proof, f *Found, b *convcache.KeyedBranch, o convcache.Offer) string {
	switch {
	case o.Tokens < c.MinTokens || float64(o.Tokens) < c.MinShare*float64(b.Tokens):
		return record.ReasonBelowThreshold
	case !f.byContent || o.Whole:
	case len(f.leadingTo(b.Key)) > 0:
		return record.ReasonNothingStored
	case p.API == body.Text:
		if slices.ContainsFunc(b.Prefilled, func(has convcache.Prefilled) bool { return has.Tokens >= o.Tokens+max(1, b.Chain.BlockSize) }) {
			return record.ReasonRewritten
		}
	case p.anothers(b) && slices.ContainsFunc(f.Branches, func(alike convcache.KeyedBranch) bool { return alike.Key == b.Key && alike.ID != b.ID }):
		return record.ReasonNothingStored
	}
	return ""
}

// differs names the first part of the request that differs from what the conversation's branches cover; of several branches, it takes the
// one that agrees for longest. If all that led to an answer is equal, that is the part behind it: the answer was changed, or is rendered in
// another way. It returns "" if the turn may use all of each branch, or if no outline is known.
func (p *Proof) differs(branches []convcache.KeyedBranch) (part string) {
	most := -1
	for i := range branches {
		b := &branches[i]
		if parts := p.agrees(b); parts > most && !p.offers.Offer(b.Branch).Whole {
			most, part = parts, p.API.PartName(parts)
		}
	}
	return part
}

// fault returns what is wrong with a conversation's id, as far as a look-up shows it. shared says that many conversations have it.
func (f *Found) fault(c *request.Conversation, shared bool) string {
	switch {
	case f.foreign, shared:
		return record.NameShared
	case f.byContent && !c.ByContent():
		return record.NameUnseen
	}
	return ""
}
