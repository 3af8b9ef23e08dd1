package connector

import (
	"errors"

	"carryover/upstream"
)

// KeepsNothing is embedded by connectors whose prefill can't read what decode holds, so that no answer leaves a
// ticket. Their Traits do not set Reuses.
type KeepsNothing struct{}

var errKeepsNothing = errors.New("the connector keeps nothing for a next turn")

// Keep keeps nothing. The error says so.
func (KeepsNothing) Keep([]byte, int) (upstream.Kept, error) { return upstream.Kept{}, errKeepsNothing }

// Release has nothing to release. The error says so.
func (KeepsNothing) Release(upstream.TicketOffer, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errKeepsNothing
}

// HandBack has nothing to hand back. The error says so.
func (KeepsNothing) HandBack(upstream.TicketOffer, string, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errKeepsNothing
}
