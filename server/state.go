package server

import (
	"context"

	"carryover/server/admission"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Counts returns what was counted until now. Its parts need not be of one moment.
func (s *Server) Counts() record.Counts {
	counted := s.pins.Counts()
	counted.Stranded, counted.Quarantines = s.turns.Stranded(), s.epoch.Count()
	if clients := s.clients.Load(); clients != nil {
		counted.Shed = clients.Shed()
	}
	return counted
}

// SetQueue changes the limits of both queues while the server runs.
func (s *Server) SetQueue(cfg admission.QueueConfig) { s.slots.Configure(cfg) }

// Waiting returns how many turns wait to begin, and how many wait for an instance.
func (s *Server) Waiting() (toBegin, forInstance int) { return s.slots.Waiting() }

// Ready returns the word of /readyz. why says in words why no turns are served, or why decode serves alone; it is "" if all is well.
func (s *Server) Ready() (word, why string) { return s.health.verdict() }

// Open returns how many turns have a slot now.
func (s *Server) Open() int { return s.slots.Open() }

// Pinned returns how many tokens of a decode engine's KV cache are pinned, see pins.Pins.Pinned.
func (s *Server) Pinned(decode *fleet.Engine) int { return s.pins.Pinned(decode) }

// Due returns what of a decode engine's KV cache waits for its release, see pins.Pins.Due.
func (s *Server) Due(decode *fleet.Engine) (pins, tokens, open int) { return s.pins.Due(decode) }

// PinnedBudget is how many tokens of a decode engine's KV cache tickets may pin, 0 if that is not known or not limited.
func (s *Server) PinnedBudget(decode *fleet.Engine) int { return s.pins.Budget(decode) }

// Drain drains an instance or takes it back, here and at the replicas that share Redis, and reports whether there is such an instance, and
// whether Redis has it already; else it has within a second of its next answer.
func (s *Server) Drain(ctx context.Context, role upstream.Role, name string, drain bool) (found, shared bool) {
	if !s.deps.Fleet.Drain(role, name, drain) {
		return false, false
	}
	engine := s.deps.Fleet.Engine(role, name)
	return true, engine != nil && s.quarantines.ShareDrain(ctx, engine)
}

// TicketsOut lists the tickets of a conversation that this replica has stored, see pins.Pins.TicketsOut.
func (s *Server) TicketsOut(conversation string) []pins.TicketOut {
	return s.pins.TicketsOut(conversation)
}

// Tickets returns how many of the tickets that this replica has made are in the store, as far as it knows.
func (s *Server) Tickets() int { return s.pins.Tickets() }

// HandBackWaiting returns how many tickets wait to be handed back.
func (s *Server) HandBackWaiting() int { return s.pins.Waiting() }

// HandBackMemory returns how many bytes the ids of tickets use, 0 if nothing is handed back.
func (s *Server) HandBackMemory() int64 { return s.pins.Memory() }
