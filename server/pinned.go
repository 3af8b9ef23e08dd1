package server

import (
	"time"

	"carryover/server/pins"
	"carryover/upstream/fleet"
)

// Pinned returns how many tokens of a decode engine's KV cache are pinned, see pins.Ledger.Pinned.
func (s *Server) Pinned(decode *fleet.Engine) int { return s.pins.Ledger.Pinned(decode) }

// PinnedBudget is how many tokens of a decode engine's KV cache tickets may pin, 0 if that is not known or not limited.
func (s *Server) PinnedBudget(decode *fleet.Engine) int { return s.pins.Budget(decode) }

// TicketsOut lists the tickets of a conversation that this replica has stored, see pins.Ledger.TicketsOut.
func (s *Server) TicketsOut(conversation string) []pins.TicketOut {
	return s.pins.Ledger.TicketsOut(conversation)
}

// Tickets returns how many of the tickets that this replica has made are in the store, as far as it knows.
func (s *Server) Tickets() int { return s.pins.Ledger.Tickets() }

// HandBackWaiting returns how many tickets wait to be handed back.
func (s *Server) HandBackWaiting() int { return s.pins.HandBacks.Waiting() }

// HandBackMemory returns how many bytes the ids of tickets use, and how many they may use. Both are 0 if nothing is handed back.
func (s *Server) HandBackMemory() (used, most int64) { return s.pins.HandBacks.Memory() }

// Exposed returns since when legs to an engine carry a quarantine's cache_salt, see quarantine.Lineages.Exposed.
func (s *Server) Exposed(engine *fleet.Engine) (since time.Time, exposed bool) {
	return s.turns.legs.lineages.Exposed(engine)
}
