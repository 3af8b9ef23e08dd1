package server

import (
	"net/http"

	"carryover/server/record"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// alone returns the reason why decode serves the attempt alone even if prefill instances are available, "" if it does not. These turns take
// none of the slots for turns that decode prefills because no prefill instance can (decodeOnlySlots).
func (k *picker) alone(t *turn) string {
	if why, ok := t.body.Disaggregable(); !ok {
		return why
	}
	switch {
	case t.API.Rendered() && !k.deps.Connector.Traits().Agents:
		return record.WhyAPI
	case k.deps.Prefillers != nil && t.Prefiller == "":
		return record.WhyNoPrefiller
	case t.record.Path().Tokens < t.routing.DisaggThreshold && !k.needsPrefill():
		return record.WhyThreshold
	}
	return ""
}

// needsPrefill reports whether decode serves no turn alone.
func (k *picker) needsPrefill() bool { return k.deps.Connector.Traits().NeedsPrefill }

// needsPrefill returns the error for a request that can't be disaggregated, where decode can't serve alone.
func needsPrefill(why string) *apiError {
	return refused(http.StatusBadRequest, "not_disaggregable", "The engines can't serve this request: decode needs prefill, and "+why+" rules that out.")
}

// cachedOn returns how many tokens of the conversation the picked decode instance has, as far as its incarnation is known without asking. The
// blocks of a ticket are in its prefix cache too. A chat without a message of the assistant continues no turn.
func (t *turn) cachedOn(decode *fleet.Engine) (tokens int) {
	last := decode.Last()
	if !last.Known() || t.API != body.Text && !t.Length.Answered {
		return 0
	}
	for i := range t.branches {
		if b := &t.branches[i]; b.Decode == decode.Name && b.Incarnation == last.ID() {
			tokens = max(tokens, b.Tokens)
		}
	}
	return tokens
}
