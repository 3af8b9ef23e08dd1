package server

import (
	"carryover/convcache"
	"carryover/server/pick"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream/body"
)

// lacksQuarantined is the cause in [proof.Unproven] if prefill computed other ids than it was sent, or if KV of the answer may come from an
// incarnation of prefill that did.
const lacksQuarantined = "quarantined"

// excludes returns why this turn uses no ticket, whatever the store has; "" if it may use one.
func (t *turn) excludes(p *pick.Pair) record.Reason {
	switch {
	case t.Conversation.Off:
		return record.ReasonBypass
	case !t.Conversation.Known:
		return record.ReasonNoConversation
	case t.ineligible != "":
		return record.Reason("ineligible_" + t.ineligible)
	case p.Prefill == nil && !p.Quarantined:
		return record.ReasonBypass
	case t.retry.withoutTicket != "":
		return t.retry.withoutTicket
	case t.lacks != "":
		return record.Reason(proof.Unproven(t.lacks))
	case t.proof.Opens():
		return record.ReasonFirstTurn
	}
	return ""
}

// missed translates the outcome of a store into the reason of a miss.
func (t *turn) missed(p *pick.Pair, outcome convcache.Outcome) record.Reason {
	switch outcome {
	case convcache.Empty:
		if p.Decode.Silence.Silent() {
			return record.ReasonNoParams
		}
		if t.opens() {
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
func (t *turn) opens() bool {
	return t.API == body.Text || !t.Length.Answered
}
