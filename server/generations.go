package server

import (
	"sync"

	"carryover/upstream"
)

// generations remembers, of each engine id of a decode instance, the highest remote_registration_generation that its params had. vLLM 0.33
// raises it when KV memory is registered again after a sleep (nixl/base_scheduler.py): the blocks from before are gone, and prefill, which
// compares nothing, would read whatever lies there now. Every replica sees the answers that it relays and the tickets that it takes.
//
// An engine whose id is configured keeps it over a restart and counts from one again. Prefill shakes hands anew for a higher generation
// only (nixl/pull_worker.py), so that it reads by the registration of the process that has ended until the number is reached again.
type generations struct {
	mu      sync.Mutex
	highest map[generationOwner]int
}

// generationOwner is an engine id of a decode instance. Each data-parallel rank has one, and vLLM makes a new one at each start unless the
// id is configured.
type generationOwner struct{ decode, engineID string }

// maxGenerations bounds the memory. Each restart leaves entries behind, but no fleet has as many within the life of a ticket. When there are
// more, all are forgotten.
const maxGenerations = 1 << 14

func newGenerations() *generations { return &generations{highest: map[generationOwner]int{}} }

// outdated notes the generation in params of a decode instance, and reports whether the engine id has had a higher one: the blocks are gone, or
// prefill would not find them. Params without a generation are older than any with one.
func (g *generations) outdated(decode string, kept *upstream.Kept) bool {
	owner := generationOwner{decode, kept.EngineID}
	g.mu.Lock()
	defer g.mu.Unlock()
	highest := g.highest[owner]
	if kept.Generation > highest {
		if len(g.highest) >= maxGenerations {
			clear(g.highest)
		}
		g.highest[owner] = kept.Generation
	}
	return kept.Generation < highest
}
