package turn

import (
	"errors"
	"net/http"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// doubt is what a failed leg may show of what it carried, while that is open.
type doubt struct {
	role upstream.Role
	tell func(spared bool)
}

// doubts are the door through which what turns show of tickets, releases and hand-overs passes: those of one turn. Its client chooses the
// request, so that a failure alone shows nothing. What turns show of engines passes [Blame], and a request of our own decides. nil doubts
// nothing.
type doubts struct {
	legs  []*upstream.LegError // those that were answered with 500, the oldest first: the engine or the request is at fault
	added []doubt              // of legs that were answered with 5xx and carried more than the request
}

// failed notes how a leg to an engine has failed. Picks prefer others for a while, once the same request went well.
func (d *doubts) failed(engine *fleet.Engine, err error) {
	var leg *upstream.LegError
	if !errors.As(err, &leg) || leg.Role != engine.Role {
		return
	}
	if atFault(leg) {
		d.carried(leg, func(spared bool) {
			if !spared {
				engine.Burden()
			}
		})
	}
	if d != nil && leg.Kind == upstream.Status && leg.Status == http.StatusInternalServerError {
		d.legs = append(d.legs, leg)
	}
}

// carried has told what a failed leg shows of the ticket, release or hand-over that it carried. That an engine has answered 5xx shows nothing
// before the same request went well without it.
func (d *doubts) carried(leg *upstream.LegError, tell func(spared bool)) {
	if d == nil || leg.Kind != upstream.Status {
		tell(false)
		return
	}
	d.added = append(d.added, doubt{leg.Role, tell})
}

// without notes that a leg of the request went well that carried none of what earlier legs to the role did.
func (d *doubts) without(role upstream.Role) {
	all := d.added
	d.added = nil
	for _, doubt := range all {
		if doubt.role == role {
			doubt.tell(false)
		} else {
			d.added = append(d.added, doubt)
		}
	}
}

// settle spares what is still open.
func (d *doubts) settle() {
	all := d.added
	*d = doubts{} // before a panic of one could have it told again
	for _, doubt := range all {
		doubt.tell(true)
	}
}
