package turn

import (
	"errors"
	"net/http"

	"carryover/upstream"
)

// doubt is what a failed leg may show, while that is open.
type doubt struct {
	leg  *upstream.LegError
	tell func(spared bool)
}

// doubts are the door through which what turns show of engines, tickets, releases and hand-overs passes: those of one turn. Its client
// chooses the request, so that a failure alone shows nothing. nil doubts nothing.
type doubts struct {
	engines []doubt // legs that were answered with 500, the oldest first: the engine or the request is at fault
	added   []doubt // legs that were answered with 5xx and carried more than the request
}

// failed has the fleet told of an engine whose leg has ended: at once, unless the request may be at fault.
func (d *doubts) failed(err error, tell func(spared bool)) {
	var leg *upstream.LegError
	if d == nil || !errors.As(err, &leg) || leg.Kind != upstream.Status || leg.Status != http.StatusInternalServerError {
		tell(false)
		return
	}
	d.engines = append(d.engines, doubt{leg, tell})
}

// carried has told what a failed leg shows of the ticket, release or hand-over that it carried. That an engine has answered 5xx shows nothing
// before the same request went well without it.
func (d *doubts) carried(leg *upstream.LegError, tell func(spared bool)) {
	if d == nil || leg.Kind != upstream.Status {
		tell(false)
		return
	}
	d.added = append(d.added, doubt{leg, tell})
}

// without notes that a leg of the request went well that carried none of what earlier legs to the role did.
func (d *doubts) without(role upstream.Role) {
	all := d.added
	d.added = nil
	for _, doubt := range all {
		if doubt.leg.Role == role {
			doubt.tell(false)
		} else {
			d.added = append(d.added, doubt)
		}
	}
}

// settle has the rest told. It spares what earlier legs carried, and the engines that have answered like a leg for which the request is at
// fault; nil for none.
func (d *doubts) settle(fault *upstream.LegError) {
	all := *d
	*d = doubts{} // before a panic of one could have it told again
	for _, doubt := range all.added {
		doubt.tell(true)
	}
	for _, doubt := range all.engines {
		doubt.tell(fault != nil && alike(doubt.leg, fault))
	}
}
