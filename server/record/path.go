package record

import "fmt"

// The ways that a turn may go.
const (
	WayPrefillDecode = "prefill_decode"
	WayDecodeOnly    = "decode_only"
)

// Why decode serves a turn alone. Besides these there are WhyConnector and the reasons of package body for requests that share one
// hand-over. The set is closed.
const (
	WhyLimits      = "limits"              // the prompt, or the answer that it asks for, is longer than an engine takes
	WhyThreshold   = "disagg_threshold"    // so little is left to compute that a hand-over does not pay
	WhyNoPrefiller = "no_prefiller"        // requests name their prefill instance, and this one names none
	WhyUnavailable = "prefill_unavailable" // no prefill instance can be reached
	WhyQuarantined = "prefill_quarantined" // the prefill instances that can be reached are quarantined
	WhyFailed      = "prefill_failed"      // prefill failed, has not the model, or gave nothing that decode could read

	WhyConnector = "connector" // the connector can't move the request, or leaves no KV that a next turn could use
)

// Path is the way that a turn went: prefill and decode, or decode alone.
type Path struct {
	Way    string // "" if the turn ended before a way was chosen
	Reason string // why decode serves alone, "" if it does not
	Tokens int    // estimate of the prompt's tokens that are in no cache
}

// Header returns the value of X-KV-Path, "" if no way was chosen.
func (p *Path) Header() string {
	switch p.Way {
	case "":
		return ""
	case WayDecodeOnly:
		return fmt.Sprintf("%s;reason=%s;tokens=%d", p.Way, p.Reason, p.Tokens)
	}
	return fmt.Sprintf("%s;tokens=%d", p.Way, p.Tokens)
}
