package connector

import (
	"errors"

	"carryover/upstream"
)

// NoTickets is embedded by connectors with which prefill can't read KV that decode holds, so that no answer leaves a
// ticket. Their Traits do not set Reuses.
type NoTickets struct{}

var errNoTickets = errors.New("the connector makes no tickets")

// ParseTicket always returns an error.
func (NoTickets) ParseTicket([]byte, int) (upstream.TicketParams, error) {
	return upstream.TicketParams{}, errNoTickets
}

// Release has nothing to release: it always returns an error.
func (NoTickets) Release(upstream.TicketOffer, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errNoTickets
}

// HandBack has nothing to hand back: it always returns an error.
func (NoTickets) HandBack(upstream.TicketOffer, string, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errNoTickets
}
