package pins

import (
	"carryover/convcache"
	"carryover/upstream"
)

// memory is one engine id of a decode instance. Each data-parallel rank has its own id. vLLM makes a new one at each start, unless it is configured.
type memory struct{ decode, engineID string }

// maxMemories bounds highest; beyond it, all are forgotten. No fleet restarts that often within the life of a ticket.
const maxMemories = 1 << 14

// Outdated reports whether the engine with a ticket's blocks has registered its memory again since.
func (p *Pins) Outdated(ticket *convcache.Ticket) bool {
	parsed, err := p.read(ticket)
	return err == nil && p.Registered(ticket.Decode.Instance, &parsed)
}

// Registered records the remote_registration_generation in a decode instance's params. It reports whether this engine id has already shown a higher
// one. vLLM 0.33 raises the number when it registers KV memory again after a sleep (nixl/base_scheduler.py). The blocks from before the sleep are
// gone then, and prefill, which compares nothing, would read whatever lies in their place. Every replica sees the generations in the answers that it
// relays and in the tickets that it takes. Params without a generation count as older than params with one.
//
// An engine with a configured id keeps it over a restart, but counts from one again. Prefill makes a new handshake only for a higher generation
// (nixl/pull_worker.py). So it keeps the registration of the old process until the number is reached again.
func (p *Pins) Registered(decode string, parsed *upstream.TicketParams) (outdated bool) {
	owner := memory{decode, parsed.EngineID}
	p.mu.Lock()
	defer p.mu.Unlock()
	highest := p.highest[owner]
	if parsed.Generation > highest {
		if len(p.highest) >= maxMemories {
			clear(p.highest)
		}
		p.highest[owner] = parsed.Generation
	}
	return parsed.Generation < highest
}
