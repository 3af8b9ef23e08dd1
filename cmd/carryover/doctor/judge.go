package doctor

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

const nixlConfig = `'{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_connector_extra_config":{"bidirectional_kv_xfer":true}}'`

// leastLoad is how many tokens prefill must lack before it reads them: kv_recompute_threshold of vLLM 0.32, by default.
const leastLoad = 64

type verdict struct {
	*doctor
	details []string
	couple  couple
	at      string // the pair, in findings
	seen    *tried
}

func (d *doctor) verdictOf(c couple, model string, seen *tried) *verdict {
	return &verdict{
		doctor: d, couple: c, at: c.name(), seen: seen,
		details: []string{
			"{prefill}", c.prefill.Name, "{decode}", c.decode.Name, "{config}", nixlConfig, "{model}", shellWord("{model}", model), "{url}", c.prefill.BaseURL,
			"{limit}", config.FormatDuration(app.ReuseTrialTimeout),
		},
	}
}

// judge stops at the first fault, because later checks would only repeat it.
func (v *verdict) judge() {
	if !v.legs() || !v.cfg.Connector.ReusesKV() || !v.tickets() {
		return
	}
	for _, stream := range []bool{true, false} {
		first, second := v.seen.turn(stream, false), v.seen.turn(stream, true)
		if second != nil && first.record.Stored == "yes" && !v.second(first, second) {
			return
		}
	}
	v.report.check(v.at, codeNotReleased, problem(v.seen.left == 0, "decode holds %d tokens of the probe's tickets, and frees them after %s",
		v.seen.left, config.FormatDuration(v.couple.decode.KVTTL)), v.details...)
}

func (v *verdict) found(code, what string, details ...string) bool {
	v.report.found(v.at, code, what, append(details, v.details...)...)
	return false
}

func (v *verdict) hold(codes ...string) bool {
	for _, code := range codes {
		v.report.holds(v.at, code, "")
	}
	return true
}

func (v *verdict) legs() bool {
	if v.seen.otherIDs {
		return v.found(codeOtherIDs, "prefill did not repeat the ids that it was sent")
	}
	for i := range v.seen.turns {
		turn := &v.seen.turns[i]
		r := &turn.record
		code, what := v.unloaded(r)
		switch {
		case turn.failure != "":
			return v.found(codeTurnFailed, turn.failure)
		case code != "":
			return v.found(code, what)
		case r.Status != http.StatusOK || r.Aborted():
			return v.found(codeTurnFailed, fmt.Sprintf("%s ended with %d %s: %v", turn, r.Status, r.Code, r.Err))
		case r.Path.Way == record.WayDecodeOnly:
			return v.found(codeNoHandover, turn.String()+" went to decode alone ("+r.Path.Reason+")")
		}
	}
	if v.cfg.Connector.Name == config.ConnectorLMCache {
		v.hold(codeNotAnnounced)
	}
	return v.hold(codeTurnFailed, codeNoHandover, codeHandoverFails, codeOtherIDs)
}

// unloaded says why decode could not load prefill's KV, "" if it could.
func (v *verdict) unloaded(r *record.Turn) (code, what string) {
	if errors.Is(r.Err, upstream.ErrNotReady) {
		return codeNotAnnounced, fmt.Sprintf("nothing was announced within %s", config.FormatDuration(v.cfg.Timeouts.HandoverBudget))
	}
	for i := range r.Legs {
		var leg *upstream.LegError
		if r.Legs[i].Role == upstream.RoleDecode && errors.As(r.Legs[i].Err, &leg) &&
			(leg.Kind == upstream.KVLoad || leg.Kind == upstream.Status && leg.Status >= http.StatusInternalServerError) {
			return codeHandoverFails, leg.Error()
		}
	}
	return "", ""
}

func (t *probeTurn) String() string {
	which, how := "the first turn", "whole"
	if t.second {
		which = "the second turn"
	}
	if t.stream {
		how = "streaming"
	}
	return which + ", " + how + ","
}

func (v *verdict) tickets() bool {
	stored := func(stream bool) string {
		if t := v.seen.turn(stream, false); t != nil {
			return t.record.Stored
		}
		return ""
	}
	none := record.ReasonNoParams
	streamed, whole := stored(true), stored(false)
	switch {
	case streamed == none && whole == none:
		return v.found(codeNoParams, "no answer has kv_transfer_params, streaming or not")
	case streamed == none:
		why, fix := upstream.WhyNoParams(v.couple.decode.version)
		v.found(codeStreamParams, "whole answers have kv_transfer_params, streams have none", "{why}", why, "{fix}", fix)
	default:
		v.hold(codeNoParams, codeStreamParams)
	}
	for _, why := range []string{streamed, whole} {
		switch why {
		case none, "":
		case "yes":
			return v.hold(codeNoTicket)
		case proof.Unproven(proof.LacksIncarnation), proof.Unproven(proof.LacksProbe):
			return false // an instance has been told of
		case proof.Unproven(proof.LacksIDs):
			return v.found(codeNoIDs, "neither its params nor its answers have the ids of the output")
		default:
			return v.found(codeNoTicket, "an answer left no ticket: "+why)
		}
	}
	return false
}

func (v *verdict) second(first, second *probeTurn) bool {
	if code, what := refused(&second.record); code != "" {
		return v.found(code, what)
	}
	if !second.record.Reuse.Hit {
		return v.found(v.missed(second))
	}
	v.hold(codeUnanswered, codeTicketFails, codeMiss, codeRewritten, codeTokenize, codeParity)
	return v.loaded(first, second)
}

func refused(r *record.Turn) (code, what string) {
	for i := range r.Legs {
		var leg *upstream.LegError
		switch {
		case r.Legs[i].Role != upstream.RolePrefill || !errors.As(r.Legs[i].Err, &leg):
		case errors.Is(leg.Err, upstream.ErrReuseTimeout), errors.Is(leg.Err, upstream.ErrTicketEnded):
			return codeUnanswered, fmt.Sprintf("prefill did not answer a ticket within %s", r.Legs[i].Took.Round(100*time.Millisecond))
		case leg.Kind == upstream.Status && leg.Status >= http.StatusInternalServerError:
			return codeTicketFails, fmt.Sprintf("prefill answered a ticket with %d", leg.Status)
		}
	}
	return "", ""
}

func (v *verdict) missed(turn *probeTurn) (code, what string) {
	reason := turn.record.Reuse.Reason
	switch reason {
	case proof.Unproven(proof.LacksShape):
		if v.seen.parity == facts.No {
			return codeParity, "its ids differ from the prompt that prefill rendered"
		}
		return codeTokenize, "it is unknown whether its ids equal those that prefill renders"
	case proof.MissTokenizeFailed:
		return codeTokenize, "a prompt could not be tokenised"
	case record.ReasonRewritten, record.ReasonBelowThreshold:
		return codeRewritten, "the second turn repeats too little of the first: " + reason
	}
	return codeMiss, strings.TrimSuffix(turn.String(), ",") + ", reused nothing: " + reason
}

// loaded judges by prefill's count of cached tokens whether it read decode's KV. Prefill has computed the first prompt itself; the answer it
// can only have from decode.
func (v *verdict) loaded(first, second *probeTurn) bool {
	offered, cached, read := second.record.Reuse.Offered, second.record.Reuse.Cached, second.record.Reuse.Read
	if cached >= 0 && offered-cached >= max(leastLoad, v.couple.decode.blockSize) {
		return v.found(codeNothingLoaded, fmt.Sprintf("of %d offered tokens prefill had %d, and its own earlier prompt had %d", offered, cached, first.record.Answer.PromptTokens))
	}
	what := fmt.Sprintf("prefill read %d of %d offered tokens, and had the others by itself", read, offered)
	if cached < 0 {
		what = "prefill does not report cached tokens (vLLM 0.31 does), so only its answer shows anything"
	}
	v.report.holds(v.at, codeNothingLoaded, what)
	return true
}
