package connector

import (
	"errors"

	"carryover/upstream"
)

// KeepsNothing is embedded by connectors with which prefill can't read KV that decode holds, so that no answer leaves a
// ticket. Their Traits do not set Reuses.
type KeepsNothing struct{}

var errKeepsNothing = errors.New("the connector keeps nothing for a next turn")

// ParseTicket keeps nothing: it always returns an error.
func (KeepsNothing) ParseTicket([]byte, int) (upstream.TicketParams, error) {
	return upstream.TicketParams{}, errKeepsNothing
}

// Release has nothing to release: it always returns an error.
func (KeepsNothing) Release(upstream.TicketOffer, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errKeepsNothing
}

// HandBack has nothing to hand back: it always returns an error.
func (KeepsNothing) HandBack(upstream.TicketOffer, string, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errKeepsNothing
}
