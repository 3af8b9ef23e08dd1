package reuse

import (
	"slices"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream/body"
)

// Choice is what an attempt reuses, as decided before its legs: how much of a ticket, or the reason of a miss.
type Choice struct {
	branch  *convcache.KeyedBranch // the ticket's branch, nil for a miss
	Offer   convcache.Offer        // how much of the ticket this request may use
	Why     string                 // the reason of a miss, "" if a ticket is used
	Differs string                 // the first part of the request that differs from what was found, "" if unknown

	byContent bool // the branch was found by content
}

// excludes returns why an attempt uses no ticket, whatever the store has; "" if it may use one. without is the reason with which an earlier attempt
// ruled tickets out, "" for none.
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

// rewritten reports whether the reason is that the history differs from a ticket's, or agrees for too few tokens.
func rewritten(why string) bool {
	return why == record.ReasonRewritten || why == record.ReasonBelowThreshold
}

// unstored returns the reason of a miss if the store has nothing. silent says that decode's answers bring no params.
func (a *Admitted) unstored(silent bool) string {
	switch {
	case silent:
		return record.ReasonNoParams
	case a.API == body.Text, !a.Length.Answered: // a text prompt does not show that others came before
		return record.ReasonFirstTurn
	}
	return record.ReasonNothingStored
}

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

// choose lists the branches that offer tokens to the request, the one with most first. Those that the request leaves have the reason in Why. If the
// branches were found by content, whole ones come first: one that would be cut may belong to another conversation, whose next turn would miss it.
func (c *Config) choose(p *Proof, f *Found) (choices []Choice) {
	for i := range f.Branches {
		b := &f.Branches[i]
		if o := p.offers.Offer(b.Branch); o.Tokens > 0 {
			choices = append(choices, Choice{branch: b, Offer: o, Why: c.leaves(p, f, b, o), byContent: f.byContent})
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

// continues reports whether the request goes on where its first choice ends.
func continues(choices []Choice) bool { return len(choices) > 0 && choices[0].Offer.Whole }

// leaves returns why a request leaves a branch where it is, "" if it may use it. Conversations without ids share keys while they are alike: chats
// that begin with the same words, completions of one template. So a branch that was found by content and would be cut stays with its own conversation
// in three cases. An alias has led to it: its id will find it. It is one of a chat's several branches under a key, and known to belong to another
// prompt. It belongs to a text and whole blocks of its prompt are not offered: the two share a template and no history.
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

// differs names the first part of the request that differs from the conversation's branches; it compares with the branch that agrees longest. If
// everything up to an answer is equal, that is the part behind it: the answer was changed, or is rendered differently. It returns "" if the request
// may use all of each branch, or if no outline is known.
func (p *Proof) differs(branches []convcache.KeyedBranch) string {
	most := -1
	for i := range branches {
		if b := &branches[i]; !p.offers.Offer(b.Branch).Whole {
			most = max(most, p.agrees(b))
		}
	}
	if most < 0 {
		return ""
	}
	return p.API.PartName(most)
}
