package pins

import (
	"sync"

	"carryover/upstream"
)

// generations remembers, for each engine id of a decode instance, the highest remote_registration_generation that its params carried. vLLM
// 0.33 raises this number when KV memory is registered again after a sleep (nixl/base_scheduler.py). The blocks from before the sleep are
// gone, and prefill, which compares nothing, would read whatever lies in their place. Every replica sees the generations in the answers
// that it relays and the tickets that it takes.
//
// An engine whose id is configured keeps the id over a restart, but counts from one again. Prefill makes a new handshake only for a higher
// generation (nixl/pull_worker.py), so it goes on reading by the registration of the process that has ended until the number is reached
// again.
type generations struct {
	mu      sync.Mutex
	highest map[generationOwner]int
}

// generationOwner is one engine id of a decode instance. Each data-parallel rank has its own, and vLLM makes a new one at each start unless
// the id is configured.
type generationOwner struct{ decode, engineID string }

// maxGenerations bounds the memory. Each restart leaves entries behind, but no fleet restarts that often within the life of a ticket. When
// the bound is reached, one of them is forgotten.
const maxGenerations = 1 << 14

func newGenerations() *generations { return &generations{highest: map[generationOwner]int{}} }

// outdated records the generation in params of a decode instance, and reports whether the engine id has already had a higher one. If so,
// the blocks are gone, or prefill would not find them. Params without a generation count as older than any params with one.
func (g *generations) outdated(decode string, parsed *upstream.TicketParams) bool {
	owner := generationOwner{decode, parsed.EngineID}
	g.mu.Lock()
	defer g.mu.Unlock()
	highest := g.highest[owner]
	if parsed.Generation > highest {
		if len(g.highest) >= maxGenerations {
			for other := range g.highest {
				delete(g.highest, other)
				break
			}
		}
		g.highest[owner] = parsed.Generation
	}
	return parsed.Generation < highest
}
