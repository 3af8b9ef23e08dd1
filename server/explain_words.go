package server

import (
	"fmt"
	"strings"
)

// sentence says for humans what the verdict means.
func (x *Explanation) sentence(reuse *Reuse) string {
	switch {
	case x.Error != nil:
		return fmt.Sprintf("The client would get status %d, %s: %s", x.Error.Status, x.Error.Code, x.Error.Message)
	case x.Queue.Busy:
		return "The turn would wait: every instance of a role that could serve it has as many turns as it may."
	case x.Verdict == VerdictTokens:
		return fmt.Sprintf("Prefill would be asked for the ids of the prompt, and %s used as far as they agree.%s", usableTickets(x.Tickets), x.differing())
	case x.Verdict == VerdictEngines:
		return "An engine has to be asked first: " + unasked[x.Proof.Asks] + "."
	case reuse.Hit:
		return fmt.Sprintf("%d tokens would be read from decode instead of computed, by the %s proof.", reuse.Offered, reuse.Proof)
	case reuse.Off:
		return "The client wants no reuse: nothing is looked up and nothing stored."
	}
	_, reason := reuse.Outcome()
	sentence := "Nothing would be reused: " + meaning(reason) + "."
	if reason == string(ReasonRewritten) || reason == string(ReasonBelowThreshold) {
		sentence += x.differing()
	}
	if x.Path != nil && x.Path.Way == WayDecodeOnly && reason == string(ReasonBypass) {
		sentence += " The reason of the path says why decode serves alone: " + x.Path.Reason + "."
	}
	return sentence
}

func usableTickets(all []TicketAhead) string {
	n := 0
	for i := range all {
		if all[i].Usable {
			n++
		}
	}
	switch n {
	case 0:
		return fmt.Sprintf("none of the %d tickets could be", len(all))
	case 1:
		return "one ticket could be"
	}
	return fmt.Sprintf("one of %d tickets could be", n)
}

// differing says where the history differs from that of the newest ticket of which this is known.
func (x *Explanation) differing() string {
	for i := range x.Tickets {
		if how := x.Tickets[i].How; how != "" {
			return " Where it differs from the request before: " + how + "."
		}
	}
	return ""
}

// unasked says what engines have to be asked for.
//
//nolint:gochecknoglobals // immutable table
var unasked = map[string]string{
	"start":    "which start of it is running is not known yet",
	"probe":    "whether it uses the ids that it is sent is not known yet",
	"template": "whether its chat template is append-only is not known yet",
	asksCache:  "the conversation was handed back to prefill, whose answer tells what of it is still in its prefix cache",
}

// meaning says what a reason means, as docs/reference.md does.
func meaning(reason string) string {
	if why, found := meanings[Reason(reason)]; found {
		return why
	}
	if why, found := strings.CutPrefix(reason, "ineligible_unproven;why="); found {
		return "an engine lacks what the proof needs (" + why + ")"
	}
	return "the request can't take part (" + strings.TrimPrefix(reason, "ineligible_") + ")"
}

//nolint:gochecknoglobals // immutable table
var meanings = map[Reason]string{
	ReasonFirstTurn:          "the request begins its conversation, and the store has nothing of it",
	ReasonNoConversation:     "the request names no conversation",
	ReasonExpired:            "the conversation's tickets have ended",
	ReasonRewritten:          "the request does not begin with what the kept blocks hold",
	ReasonBelowThreshold:     "so little could be reused that computing is cheaper (reuse_min_tokens, reuse_min_share)",
	ReasonConsumed:           "another request has taken the ticket",
	ReasonNothingStored:      "the store has nothing of the conversation",
	ReasonReleasedForOthers:  "the ticket was released because requests waited for room in decode's KV cache and none ran",
	ReasonReleasedOverBudget: "the ticket was released because tickets pinned too much of decode's KV cache",
	ReasonInstanceGone:       "the decode instance that holds the blocks is gone, or was restarted",
	ReasonQuarantined:        "its KV may come from a prefill instance that is under quarantine",
	ReasonInstanceCleared:    "the decode instance has cleared its KV cache",
	ReasonStoreUnavailable:   "the ticket store does not answer",
	ReasonStoreFailedOver:    "Redis has failed over since the ticket was put",
	ReasonNotBidirectional:   "the pair of instances does not answer tickets, and is left alone for a while",
	ReasonPairOnTrial:        "another turn is trying whether the pair of instances answers tickets",
	ReasonNoParams:           "decode's answers carry no kv_transfer_params",
	ReasonBypass:             "decode would serve the turn alone",
	ReasonHandingBack:        "the ticket is on its way to prefill's prefix cache",

	ReasonHandedBackEvicted:   "prefill's prefix cache, to which the conversation was handed back, has nothing of it any more",
	ReasonHandedBackElsewhere: "the conversation was handed back to another prefill instance",
	ReasonHandBackUnreported:  "the conversation was handed back, and prefill does not tell what it takes from its cache",

	"tokenize_failed":           "prefill does not say what the prompt's ids are",
	"ineligible_not_comparable": "/tokenize can't be given such a request, so that its ids can't be compared",
	"template_not_append_only":  "the chat template renders history otherwise than it was generated",
}
