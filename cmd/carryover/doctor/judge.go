package doctor

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"carryover/cmd/carryover/config"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// nixlConfig is what engines are started with (--kv-transfer-config).
const nixlConfig = `'{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_connector_extra_config":{"bidirectional_kv_xfer":true}}'`

// verdict judges the observations of turns on a pair.
type verdict struct {
	report  *doctorReport
	cfg     config.Config
	at      string
	details []string
	model   string
	couple  couple
	seen    *tried
}

// verdictOf knows how findings of a pair name things.
func (d *doctor) verdictOf(c couple, model string, seen *tried) *verdict {
	return &verdict{
		report: d.report, cfg: d.cfg, at: c.name(), couple: c, seen: seen, model: model,
		details: []string{
			"{prefill}", c.prefill.Name, "{decode}", c.decode.Name, "{config}", nixlConfig, "{model}", shellWord("{model}", model), "{url}", c.prefill.BaseURL,
			"{limit}", config.FormatDuration(d.cfg.Proof.ReuseTrialTimeout), "{instance}", c.prefill.Name + " and " + c.decode.Name,
		},
	}
}

// judge says what is wrong with a pair.
func (d *doctor) judge(c couple, model string, seen *tried) {
	v := d.verdictOf(c, model, seen)
	if seen.addressTaken {
		v.found(codeAddressTaken, "somebody listens at --lmcache-listen "+d.cfg.LMCache.Listen+", so that no turn was tried")
		return
	}
	if seen.template == facts.No {
		v.found(codeTemplate, "a finished turn does not begin with the tokens that were rendered to generate it; no turn was tried")
		return
	}
	if !v.legs() || !d.cfg.Connector.ReusesKV() {
		return
	}
	v.host(codePrefillHost, v.seen.prefill, v.couple.prefill, true)
	if v.tickets() {
		v.reuse()
	}
	if seen.left > 0 {
		v.found(codeNotReleased, fmt.Sprintf("%d tickets of the probe could not be; decode frees their blocks after %s", seen.left, config.FormatDuration(c.decode.KVTTL)))
	} else {
		v.holds(codeNotReleased, "")
	}
}

func (v *verdict) found(code, what string) { v.report.found(v.at, code, what, v.details...) }

func (v *verdict) holds(code, what string) { v.report.holds(v.at, code, what) }

// legs judges whether turns get through at all, and by prefill and decode. It reports whether anything more can be judged.
func (v *verdict) legs() bool {
	if v.seen.quarantined {
		v.found(codeOtherIDs, "prefill did not repeat the ids that it was sent")
		return false
	}
	for i := range v.seen.turns {
		turn := &v.seen.turns[i]
		r := &turn.record
		switch {
		case turn.failure != "":
			v.found(codeTurnFailed, turn.failure)
			return false
		case v.unloaded(r):
			return false
		case r.End.Status != http.StatusOK || r.Aborted():
			v.found(codeTurnFailed, fmt.Sprintf("%s ended with %d %s: %v", turn, r.End.Status, r.End.Code, r.End.Err))
			return false
		case r.Path.Way == record.WayDecodeOnly:
			v.found(codeNoHandover, turn.String()+" went to decode alone ("+r.Path.Reason+")")
			return false
		}
	}
	for _, code := range []string{codeTurnFailed, codeNoHandover, codeHandoverFails, codeOtherIDs} {
		v.holds(code, "")
	}
	if v.cfg.Connector.Name == config.ConnectorLMCache {
		v.holds(codeNotAnnounced, "")
	}
	return true
}

// unloaded says so if decode could not load what prefill has handed over, and reports whether that is so.
func (v *verdict) unloaded(r *record.Turn) bool {
	if errors.Is(r.End.Err, upstream.ErrNotReady) || r.Path.Reason == "not_announced" {
		v.found(codeNotAnnounced, fmt.Sprintf("nothing was announced within %s", config.FormatDuration(v.cfg.Timeouts.HandoverBudget)))
		return true
	}
	for i := range r.Legs {
		var leg *upstream.LegError
		if r.Legs[i].Role != upstream.RoleDecode || !errors.As(r.Legs[i].Err, &leg) {
			continue
		}
		if leg.Kind == upstream.KVLoad || leg.Kind == upstream.Status && leg.Status >= http.StatusInternalServerError {
			v.found(codeHandoverFails, leg.Error())
			v.host(codePrefillHost, v.seen.prefill, v.couple.prefill, false)
			return true
		}
	}
	if r.Answer.Fault >= http.StatusInternalServerError {
		v.found(codeHandoverFails, fmt.Sprintf("decode's answer tells an error of %d", r.Answer.Fault))
		v.host(codePrefillHost, v.seen.prefill, v.couple.prefill, false)
		return true
	}
	return false
}

// String names a turn in findings.
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

// host judges the address at which an engine says that its KV is. Where KV was loaded from there it is right, whatever it looks like.
func (v *verdict) host(code string, place kvPlace, of *examined, loaded bool) {
	if !place.told {
		return
	}
	switch trap := hostTrap(place, of); {
	case trap == "":
		v.holds(code, "")
	case loaded:
		v.holds(code, trap+"; KV was loaded from there all the same")
	default:
		v.report.found(v.at, code, trap, append([]string{"{host}", of.Host()}, v.details...)...)
	}
}

// hostTrap says why an address of an engine's KV may lead others to themselves, "" if it does not. An engine listens where it says.
func hostTrap(place kvPlace, of *examined) string {
	if !isLocal(place.host) || of.Host() == place.host || strings.EqualFold(of.Host(), "localhost") || of.Host() == "127.0.0.1" || of.Host() == "::1" {
		return "" // of another machine, or all is on this one
	}
	if place.passed != "" && place.passed != place.host {
		return fmt.Sprintf("%s says that its KV is at %q; kv.host %s puts %s there", of.Name, place.host, of.KVHost, place.passed)
	}
	return fmt.Sprintf("%s says that its KV is at %q, which is passed on as it is", of.Name, place.host)
}

// isLocal reports whether a host means the machine that reads it.
func isLocal(host string) bool {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "" || strings.EqualFold(host, "localhost") || err == nil && (addr.Unmap().IsLoopback() || addr.IsUnspecified())
}

// tickets judges whether first turns have left tickets, and reports whether one has.
func (v *verdict) tickets() bool {
	stored := func(stream bool) string {
		if t := v.seen.turn(stream, false); t != nil {
			return t.record.Stored
		}
		return ""
	}
	none := string(record.ReasonNoParams)
	streamed, whole := stored(true), stored(false)
	switch {
	case streamed == none && whole == none:
		v.found(codeNoParams, "no answer has kv_transfer_params, streaming or not")
		return false
	case streamed == none:
		why, fix := upstream.WhyNoParams(v.couple.decode.version, body.Chat, true, true)
		v.report.found(v.at, codeStreamParams, "whole answers have kv_transfer_params, streams have none", append([]string{"{why}", why, "{fix}", fix}, v.details...)...)
	default:
		v.holds(codeNoParams, "")
		v.holds(codeStreamParams, v.plugIn())
	}
	if v.seen.decode.told {
		what := ""
		if !v.seen.decode.expires {
			what = "its params have no remote_blocks_expiry_time"
		}
		v.report.check(v.at, codeExpiry, what, v.details...)
	}
	for _, why := range []string{streamed, whole} {
		switch {
		case why == none, why == "":
		case why == "yes":
			v.holds(codeNoTicket, "")
			return true
		case why == proof.Unproven(proof.LacksIncarnation), why == proof.Unproven(proof.LacksProbe):
			return false // an instance has been told of
		case why == proof.Unproven(proof.LacksIDs):
			v.found(codeNoIDs, "neither its params nor its answers have the ids of the output")
			return false
		case why == "ineligible_block_groups":
			v.found(codeBlockGroups, "decode's blocks are of several groups, as of models with sliding windows or state")
			return false
		default:
			v.found(codeNoTicket, "an answer left none: "+why)
			return false
		}
	}
	return false
}

// plugIn says where decode's output ids come from.
func (v *verdict) plugIn() string {
	switch {
	case v.cfg.KV.DecodeStream == config.DecodeBuffered:
		return "streams are made of whole answers (--decode-stream buffered)"
	case v.seen.plugIn == facts.Yes:
		return "streams end with decode's params, and the plug-in's output ids"
	case v.seen.plugIn == facts.No:
		return "streams end with decode's params, without output ids of a plug-in: they are asked for (return_token_ids)"
	}
	return ""
}
