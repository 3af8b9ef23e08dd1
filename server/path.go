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
	if why, ok := t.req.Disaggregable(); !ok {
		return why
	}
	switch {
	case t.api.Rendered() && !k.deps.Connector.Traits().Agents:
		return record.WhyAPI
	case k.deps.Prefillers != nil && t.prefiller == "":
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
	if !last.Known() || t.api != body.Text && !t.length.Answered {
		return 0
	}
	for i := range t.branches {
		if b := &t.branches[i]; b.Decode == decode.Name && b.Incarnation == last.ID() {
			tokens = max(tokens, b.Tokens)
		}
	}
	return tokens
}

// uncached estimates how many tokens of the prompt are to be computed where so many of the conversation are held. It is no proof:
// how much of them the request has shows when ids are compared, which is later.
func (t *turn) uncached(bytesPerToken float64, tokens int) int {
	whole, tail := t.length.Whole.Tokens(bytesPerToken), t.length.Tail.Tokens(bytesPerToken)
	rest, near := whole-tokens, 3*max(tokens+tail, whole) <= 4*min(tokens+tail, whole)
	switch {
	case tokens == 0, tokens > 2*whole, rest < 0 && t.length.Whole.IDs > 0: // the request has another beginning
		return whole
	case !t.length.Answered:
		return max(rest, 0)
	case near:
		// An estimate is wrong by a share of the whole, and in a long conversation that is more than a follow-up has. So only the
		// tail counts where it comes with what is held within a third of the whole; decode has computed by itself what lies between.
		return tail
	}
	return max(rest, tail)
}
