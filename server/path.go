package server

import (
	"net/http"
	"strconv"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// The ways that a turn may go.
const (
	WayPrefillDecode = "prefill_decode"
	WayDecodeOnly    = "decode_only"
)

// Why decode serves a turn alone, beside what package upstream says of requests that share one hand-over, and whyConnector. The
// set is closed.
const (
	whyThreshold   = "disagg_threshold"    // too little is to be computed for a hand-over to pay
	whyNoPrefiller = "no_prefiller"        // the request was to name its prefill instance, and names none
	whyUnavailable = "prefill_unavailable" // no prefill instance can be reached
	whyQuarantined = "prefill_quarantined" // those that can be reached are barred
	whyFailed      = "prefill_failed"      // prefill failed, or gave nothing that decode could read

	whyNotAnnounced = "not_announced" // prefill's KV has not been announced for this decode instance of late
)

// Path is the way that a turn has gone.
type Path struct {
	Way    string // "" if the turn got to none
	Reason string // why decode serves alone
	Tokens int    // how many tokens of the prompt are expected to be in no cache, an estimate
}

// Header is the value of X-KV-Path, "" if the turn got to no way.
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

// alone says why decode serves the attempt alone whatever prefill instances there are, "" if it does not. None of these ways takes
// a place among the turns that decode prefills for want of prefill.
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

// needsPrefill refuses a request that prefill can't share with decode, where decode serves none alone.
func needsPrefill(why string) *apiError {
	return refused(http.StatusBadRequest, "not_disaggregable", "The engines can't serve this request: decode needs prefill, and "+why+" rules that out.")
}

// cachedOn is how many tokens of the conversation the picked decode instance has, as far as its start is known without asking: the
// blocks of a ticket are in its prefix cache too. A chat without a message of the assistant continues nothing.
func (t *turn) cachedOn(decode *fleet.Engine) (tokens int) {
	last := decode.Last()
	if !last.Known() || t.api != upstream.Text && !t.length.Answered {
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
	case tokens == 0, tokens > 2*whole, rest < 0 && t.length.Whole.IDs > 0: // it begins otherwise
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
