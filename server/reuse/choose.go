package reuse

import (
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream/body"
	"carryover/upstream/fleet/pairs"
)

// Choice is what an attempt reuses, as far as that is decided before its legs: how much of a ticket, or why nothing.
type Choice struct {
	Offer     convcache.Offer // how much of the ticket this request may use
	FreshAsOf time.Time       // of the ticket
	Why       string          // of a miss, "" if a ticket is used
	Differs   string          // the part of the request from which on it differs from what was found, "" if that is not known
	Name      string          // what is wrong with the conversation's id
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
	case p.lacks != "":
		return proof.Unproven(p.lacks)
	}
	return ""
}

// rewritten reports whether a reason says that the history differs from a ticket's, or agrees with it for too few tokens.
func rewritten(why string) bool {
	return why == record.ReasonRewritten || why == record.ReasonBelowThreshold
}

// missed returns the reason of a miss for the outcome of a store. silent says that decode's answers bring no params.
func missed(a *Admitted, outcome convcache.Outcome, silent bool) string {
	switch outcome {
	case convcache.Empty:
		switch {
		case silent:
			return record.ReasonNoParams
		case a.API == body.Text, !a.Length.Answered: // a text prompt does not show that others came before
			return record.ReasonFirstTurn
		}
		return record.ReasonNothingStored
	case convcache.Expired:
		return record.ReasonExpired
	case convcache.Consumed:
		return record.ReasonConsumed
	case convcache.Fenced:
		return record.ReasonStoreFailedOver
	}
	return record.ReasonStoreUnavailable
}

// choice is a branch, how much of it the request may use, and why the request leaves it nevertheless.
type choice struct {
	branch convcache.KeyedBranch
	offer  convcache.Offer
	leaves string // "" if it does not leave it
}

// choose lists the branches that the request may use, in order. why says why nothing is reused if none of them can be taken.
func (c *Config) choose(p *Proof, f *Found) (choices []choice, why string) {
	for _, b := range f.Branches {
		if o := p.offer(b.Branch); o.Tokens > 0 {
			choices = append(choices, choice{b, o, c.leaves(p, f, &b, o)})
		}
	}
	order(choices, f.byContent)
	if f.dropped != "" && len(f.Branches) == 0 {
		return nil, f.dropped
	}
	return choices, record.ReasonRewritten
}

// order puts the branch with most usable tokens first. Where they were found by content, branches of which it may use all
// come before others: a branch that would be cut may be of another conversation that began alike, and its own next turn would find it gone.
func order(choices []choice, byContent bool) {
	slices.SortStableFunc(choices, func(a, b choice) int {
		if byContent && a.offer.Whole != b.offer.Whole {
			if a.offer.Whole {
				return -1
			}
			return 1
		}
		return b.offer.Tokens - a.offer.Tokens
	})
}

// continues reports whether the request goes on where the first of its choices ends.
func continues(choices []choice) bool { return len(choices) > 0 && choices[0].offer.Whole }

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
	case p.anothers(&b.Branch) && slices.ContainsFunc(f.Branches, func(alike convcache.KeyedBranch) bool { return alike.Key == b.Key && alike.ID != b.ID }):
		return record.ReasonNothingStored
	}
	return ""
}

// denies returns the reason why a pair with this status may be offered no ticket, "" if it may.
func denies(status pairs.Status) string {
	switch status {
	case pairs.NoReuse:
		return record.ReasonNotBidirectional
	case pairs.Busy:
		return record.ReasonPairOnTrial
	}
	return ""
}

// differs names the first part of the request that differs from what the conversation's branches cover; of several branches, it takes the
// one that agrees for longest. If all that led to an answer is equal, that is the part behind it: the answer was changed, or is rendered in
// another way. It returns "" if the turn may use all of each branch, or if no outline is known.
func (p *Proof) differs(branches []convcache.KeyedBranch) (part string) {
	most := -1
	for i := range branches {
		b := &branches[i].Branch
		if parts, known := p.outline.agrees(b); known && parts > most && !p.offer(*b).Whole {
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
