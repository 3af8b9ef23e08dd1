package record

import (
	"slices"
	"strings"
)

// Term is a word of a closed set that answers, logs and metrics have.
type Term struct {
	Name  string
	Means string // what happened; of a reason, a sentence for people
	Do    string // what an operator or a client can do, as a sentence; "" where nothing is wrong, or Means says it
}

// hint returns the sentences of a term on one line.
func (t *Term) hint() string {
	if t.Do == "" {
		return t.Means
	}
	return t.Means + " " + t.Do
}

// hints has the sentences of terms by their names.
type hints map[string]string

func hintsOf(terms []Term) hints {
	all := make(hints, len(terms))
	for i := range terms {
		all[terms[i].Name] = terms[i].hint()
	}
	return all
}

//nolint:gochecknoglobals // immutable tables
var (
	missHints, ineligibleHints  = hintsOf(slices.Concat(missReasons, emptyHits)), hintsOf(ineligibleReasons)
	aloneHints, storedTermHints = hintsOf(aloneReasons), hintsOf(storedResults)
)

//nolint:gochecknoglobals // immutable table
var nameHints = map[Name]string{
	NameUnseen: "Nothing is kept under the request's id, and its content has found the conversation: ids that never repeat name none. Send one id with all turns of a conversation, or none.",
	NameShared: "Many conversations share the request's id, and their contents tell them apart. Send each conversation's own id, or none.",
}

// Hint returns in plain words why a turn reused or saved nothing, or why its id was of no use, and what can be done; "" for other turns, and
// for one whose client wanted no reuse.
func (r *Turn) Hint() string {
	if hint := nameHints[r.Reuse.Name]; hint != "" && r.Reuse.Hit {
		return hint
	}
	_, reason := r.Reuse.Outcome()
	if r.Reuse.Released && reason == string(ReasonNothingStored) {
		return "The KV was released on purpose: answers such as the one before were not continued, and this turn counts against that. " +
			"To keep all, give `--hand-back-after` a duration."
	}
	return Hint(reason, r.Path.Reason)
}

// Hint returns the sentences of a reason why a turn reuses or saves nothing, "" for no reason. alone is why decode serves the turn alone, "" if it does
// not.
func Hint(reason, alone string) string {
	switch {
	case reason == "":
		return ""
	case reason == string(ReasonBypass) && aloneHints[alone] != "":
		return aloneHints[alone]
	}
	return hintOf(reason)
}

// StoredHint returns in plain words why an answer left no ticket, "" if it left one or there was no answer.
func StoredHint(stored string) string {
	if stored == "" || stored == "yes" {
		return ""
	}
	if hint := storedTermHints[stored]; hint != "" {
		return hint
	}
	return hintOf(stored)
}

func hintOf(reason string) string {
	if hint := missHints[reason]; hint != "" {
		return hint
	}
	why := strings.TrimPrefix(reason, "ineligible_")
	if hint := ineligibleHints[why]; hint != "" {
		return hint
	}
	if hint := storedTermHints[reason]; hint != "" { // of an answer as of a history with such a message
		return hint
	}
	return "The request or its answer can take no part in reuse (" + why + ")."
}
