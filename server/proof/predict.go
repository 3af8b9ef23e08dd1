package proof

import (
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// Prediction is what Begin and Look of an attempt would return, as far as that is known without asking an engine. If Lacks, Miss and Asks
// are all empty, Offer returns how much of each branch may be used.
type Prediction struct {
	Lacks string // what is missing for any proof on these engines
	Miss  string // why the request can use no branch at all
	Asks  string // what an engine has to be asked first; see the constants Asks…
	// Parity says whether /tokenize agrees with the prefill incarnation for requests of this shape. Template says whether the chat template
	// is append-only. Each is Unknown if the proof does not use it.
	Parity, Template facts.Finding
}

// What an engine has to be asked before a turn is proven.
const (
	AsksIncarnation = "incarnation" // its incarnation: /metrics
	AsksProbe       = "probe"       // whether it uses the ids that it is sent
	AsksTokens      = "tokens"      // the ids of the prompt: /tokenize, or a render endpoint
	AsksTemplate    = "template"    // whether the chat template is append-only
)

// Predict implements Turn.
func (t *tokensTurn) Predict(a Attempt) (f Prediction) {
	t.attempt, t.ids = a, newIDs(t)
	f.Parity = a.Prefill.Parity.Of(t.req.Model(), t.shape)
	for _, incarnation := range []*fleet.Incarnation{a.Prefill, a.Decode} {
		switch {
		case f.Asks != "" || f.Lacks != "":
		case !incarnation.Known():
			f.Asks = AsksIncarnation
		case !t.forwardsTo(incarnation) || incarnation.Capability.UsesIDs(t.api) == facts.Yes:
		case incarnation.Capability.UsesIDs(t.api) == facts.No:
			f.Lacks = LacksProbe
		default:
			f.Asks = AsksProbe
		}
	}
	switch {
	case f.Asks != "" || f.Lacks != "":
		return f
	case t.api.Rendered():
		t.predictRender(&f)
		return f
	}
	ids, told := t.req.Prompt().IDs()
	switch {
	case told:
		t.ids.compare(facts.Prompt{IDs: ids, List: t.req.Prompt().Text()})
	case t.shape == "":
		f.Miss = MissNotComparable
	case f.Parity != facts.Yes:
		f.Miss = Unproven(LacksShape)
	default:
		f.Asks = AsksTokens
	}
	return f
}

// predictRender predicts a turn whose prompt ids come from a render endpoint.
func (t *tokensTurn) predictRender(f *Prediction) {
	switch {
	case t.attempt.Prefill.Prompts.Renders(t.api) != facts.No:
		f.Asks = AsksTokens
	case t.api == body.Responses: // its answer reports the ids, so it can still leave a ticket
		f.Miss = Unproven(LacksRender)
	default:
		f.Lacks = LacksRender
	}
}

// Predict implements Turn.
func (t *historyTurn) Predict(a Attempt) (f Prediction) {
	t.prefill, t.authorization = a.Prefill, a.Authorization
	if !a.Prefill.Known() || !a.Decode.Known() {
		f.Asks = AsksIncarnation
		return f
	}
	if t.api != body.Chat {
		return f
	}
	f.Template = a.Prefill.Template.Found(t.model, t.kwargs)
	switch f.Template {
	case facts.Yes:
	case facts.No:
		f.Miss = MissNotAppendOnly
	default:
		f.Asks = AsksTemplate
	}
	return f
}
