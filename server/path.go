package server

import (
	"net/http"
	"strconv"

	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// The ways that a turn may go.
const (
	WayPrefillDecode = "prefill_decode"
	WayDecodeOnly    = "decode_only"
)

// Why decode serves a turn alone. Besides these there are whyConnector and the reasons of package upstream for requests that share one
// hand-over. The set is closed.
const (
	whyThreshold   = "disagg_threshold"    // so little is left to compute that a hand-over does not pay
	whyNoPrefiller = "no_prefiller"        // requests name their prefill instance, and this one names none
	whyUnavailable = "prefill_unavailable" // no prefill instance can be reached
	whyQuarantined = "prefill_quarantined" // the prefill instances that can be reached are quarantined
	whyFailed      = "prefill_failed"      // prefill failed, or gave nothing that decode could read

	whyNotAnnounced = "not_announced" // prefill's KV has recently not been announced for this decode instance
)

// Path is the way that a turn went: prefill and decode, or decode alone.
type Path struct {
	Way    string // "" if the turn ended before a way was chosen
	Reason string // why decode serves alone, "" if it does not
	Tokens int    // estimate of the prompt's tokens that are in no cache
}

// Header returns the value of X-KV-Path, "" if no way was chosen.
func (p *Path) Header() string { return string(p.appendHeader(make([]byte, 0, 96))) }

func (p *Path) appendHeader(b []byte) []byte {
	if p.Way == "" {
		return b
	}
	b = append(b, p.Way...)
	if p.Way == WayDecodeOnly {
		b = append(append(b, ";reason="...), p.Reason...)
	}
	return strconv.AppendInt(append(b, ";tokens="...), int64(p.Tokens), 10)
}

func (p *Path) disaggregate() { p.Way, p.Reason = WayPrefillDecode, "" }

func (p *Path) alone(why string) { p.Way, p.Reason = WayDecodeOnly, why }

// alone returns the reason why decode serves the attempt alone even if prefill instances are available, "" if it does not. These turns take
// none of the slots for turns that decode prefills because no prefill instance can (decodeOnlySlots).
func (k *picker) alone(t *turn) string {
	if why, ok := t.req.Disaggregable(); !ok {
		return why
	}
	switch {
	case t.api.Rendered() && !k.deps.Connector.Traits().Agents:
		return whyAPI
	case k.deps.Prefillers != nil && t.prefiller == "":
		return whyNoPrefiller
	case t.record.Path.Tokens < t.routing.DisaggThreshold && !k.needsPrefill():
		return whyThreshold
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
