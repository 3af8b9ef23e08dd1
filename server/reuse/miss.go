package reuse

import (
	"carryover/convcache"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream/body"
)

// excludes returns why this turn uses no ticket, whatever the store has; "" if it may use one.
func (p *Proving) excludes() record.Reason {
	switch {
	case p.request.Conversation.Off:
		return record.ReasonBypass
	case !p.request.Conversation.Known:
		return record.ReasonNoConversation
	case p.Ineligible != "":
		return record.Reason("ineligible_" + p.Ineligible)
	case p.pair.Prefill == nil && !p.pair.Quarantined:
		return record.ReasonBypass
	case p.Without != "":
		return p.Without
	case p.pair.Quarantined:
		return record.ReasonQuarantined
	case p.lacks != "":
		return record.Reason(proof.Unproven(p.lacks))
	}
	return ""
}

// missed translates the outcome of a store into the reason of a miss.
func (p *Proving) missed(outcome convcache.Outcome) record.Reason {
	switch outcome {
	case convcache.Empty:
		if p.pair.Decode.Silence.Silent() {
			return record.ReasonNoParams
		}
		if p.opens() {
			return record.ReasonFirstTurn
		}
		return record.ReasonNothingStored
	case convcache.Expired:
		return record.ReasonExpired
	case convcache.Consumed:
		return record.ReasonConsumed
	case convcache.Fenced:
		return record.ReasonStoreFailedOver
	case convcache.Taken:
		// The ticket that was taken is not the one that was looked at, and is given up.
		return record.ReasonRewritten
	}
	return record.ReasonStoreUnavailable
}

// opens reports whether the request looks like the first of its conversation. A text prompt does not show that, so it always counts as the
// first.
func (p *Proving) opens() bool {
	return p.request.API == body.Text || !p.request.Length.Answered
}
