package connector_test

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/connector"
)

func TestNoTickets_RefusesWhateverIsAskedOfATicket(t *testing.T) {
	var none connector.NoTickets
	_, parse := none.ParseTicket([]byte(`{}`), 16)
	_, release := none.Release(upstream.TicketOffer{}, "turn")
	_, handBack := none.HandBack(upstream.TicketOffer{}, "turn", "")
	for what, err := range map[string]error{"ParseTicket": parse, "Release": release, "HandBack": handBack} {
		if err == nil {
			t.Errorf("%s returns no error", what)
		}
	}
}
