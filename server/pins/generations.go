package pins

import (
	"carryover/convcache"
	"carryover/upstream"
)

// memory is one engine id of a decode instance. Each data-parallel rank has its own, and vLLM makes a new one at each start unless the id is
// configured.
type memory struct{ decode, engineID string }

// maxMemories bounds those that are remembered. Each restart leaves entries behind, but no fleet restarts that often within the life of a
// ticket. When the bound is reached, one of them is forgotten.
const maxMemories = 1 << 14

// Outdated reports whether the engine that holds a ticket's blocks has registered its memory again since.
func (p *Pins) Outdated(ticket *convcache.Ticket) bool {
	parsed, err := p.read(ticket)
	return err == nil && p.Registered(ticket.Decode.Instance, parsed)
}

// Registered notes the remote_registration_generation in params of a decode instance, and reports whether the engine id has already had a higher
// one. vLLM 0.33 raises this number when KV memory is registered again after a sleep (nixl/base_scheduler.py). The blocks from before the sleep
// are gone, and prefill, which compares nothing, would read whatever lies in their place. Every replica sees the generations in the answers that
// it relays and the tickets that it takes. Params without a generation count as older than any params with one.
//
// An engine whose id is configured keeps the id over a restart, but counts from one again. Prefill makes a new handshake only for a higher
// generation (nixl/pull_worker.py), so it goes on reading by the registration of the process that has ended until the number is reached
// again.
func (p *Pins) Registered(decode string, parsed *upstream.TicketParams) (outdated bool) {
	owner := memory{decode, parsed.EngineID}
	p.mu.Lock()
	defer p.mu.Unlock()
	highest := p.highest[owner]
	if parsed.Generation > highest {
		if len(p.highest) >= maxMemories {
			for other := range p.highest {
				delete(p.highest, other)
				break
			}
		}
		p.highest[owner] = parsed.Generation
	}
	return parsed.Generation < highest
}
