package explain

import (
	"fmt"

	"carryover/server/record"
	"carryover/server/reuse"
)

// sentence explains the verdict to a person.
func (x *Explanation) sentence(outcome *record.Reuse) string {
	switch {
	case x.Error != nil:
		return fmt.Sprintf("The client would get status %d, %s: %s", x.Error.Status, x.Error.Code, x.Error.Message)
	case x.Queue.Busy:
		return "The turn would wait: every instance of a role that could serve it has as many turns as it may."
	case x.Verdict == VerdictTokens:
		return fmt.Sprintf("Prefill would be asked for the ids of the prompt, and %s used as far as they agree.%s", usableTickets(x.Tickets), x.differing())
	case x.Verdict == VerdictEngines:
		return "An engine has to be asked first: " + unasked[x.Proof.Asks] + "."
	case outcome.Hit:
		return fmt.Sprintf("%d tokens would be read from decode instead of computed, by the %s proof.", outcome.Offered, outcome.Proof)
	case outcome.Off:
		return "The client wants no reuse: nothing is looked up and nothing stored."
	}
	_, reason := outcome.Outcome()
	sentence := "Nothing would be reused. " + x.Hint
	if reason == string(record.ReasonRewritten) || reason == string(record.ReasonBelowThreshold) {
		sentence += x.differing()
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

// differing returns where the history differs from that of the newest ticket whose difference is known.
func (x *Explanation) differing() string {
	for i := range x.Tickets {
		if how := x.Tickets[i].How; how != "" {
			return " Where it differs from the request before: " + how + "."
		}
	}
	return ""
}

// unasked explains each question that an engine has to be asked.
//
//nolint:gochecknoglobals // immutable table
var unasked = map[string]string{
	"incarnation":   "which incarnation of it is running is not known yet",
	"probe":         "whether it uses the ids that it is sent is not known yet",
	"template":      "whether its chat template is append-only is not known yet",
	reuse.AsksCache: "the conversation was handed back to prefill, whose answer tells what of it is still in its prefix cache",
}
