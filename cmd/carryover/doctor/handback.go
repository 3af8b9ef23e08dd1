package doctor

import (
	"fmt"
)

// handBack reports whether the configuration has tickets handed back. If no setting can change that, it is no fault.
func (d *doctor) handBack() {
	off := d.cfg.HandBackOff()
	switch {
	case off.Why == "":
		d.report.holds(whereSettings, codeHandBack, fmt.Sprintf("on: a ticket is handed back to prefill %s", d.cfg.HandBackWhen()))
	case off.Change == "":
		d.report.holds(whereSettings, codeHandBack, "off: "+off.Why)
	default:
		d.report.found(whereSettings, codeHandBack, "off: "+off.Why, "{change}", off.Change)
	}
}

// HandsBack says whether a pair can hand back what the configuration wants handed back: its leg is answered as a turn's with a ticket is,
// and prefill keeps what it reads.
func (v *verdict) handsBack() {
	switch prefill := v.couple.prefill; {
	case v.cfg.HandBackOff().Why != "":
	case prefill.forgets != "":
		v.report.found(v.at, codeHandBack, "off on this pair: what is handed back to "+prefill.Name+" is not found again, because "+prefill.forgets,
			"{change}", "--enable-prefix-caching on "+prefill.Name)
	default:
		v.holds(codeHandBack, "prefill answers tickets, so that they can be handed back to it")
	}
}

// handsNothingBack says so of a pair on which tickets come to nothing, by the code of that.
func (v *verdict) handsNothingBack(code, what string) {
	if v.cfg.HandBackOff().Why == "" {
		v.report.found(v.at, codeHandBack, "off on this pair: "+what, "{change}", fmt.Sprintf(
			"what %s says: bidirectional_kv_xfer true on %s and %s, and KV addresses that they reach", code, v.couple.prefill.Name, v.couple.decode.Name))
	}
}
