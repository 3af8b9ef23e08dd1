package server

import (
	"sync"

	"carryover/upstream"
)

// generations remembers, of each engine of each start of decode, the highest remote_registration_generation that its params had. vLLM 0.33
// raises it when KV memory is registered again after a sleep (nixl/base_scheduler.py): what was held before is gone, and prefill, which
// compares nothing, would read whatever lies there now. Every replica sees the answers that it relays and the tickets that it takes.
type generations struct {
	mu      sync.Mutex
	highest map[generationOwner]int
}

// generationOwner is an engine id of one incarnation of decode. Each data-parallel rank has one.
type generationOwner struct{ decode, start, engineID string }

// maxGenerations bounds the memory. Each restart leaves entries behind, but no fleet has as many within the life of a ticket. When there are
// more, all are forgotten.
const maxGenerations = 1 << 14

func newGenerations() *generations { return &generations{highest: map[generationOwner]int{}} }

// outdated notes the generation in params of an incarnation of decode, and reports whether the engine has had a higher one, so that the blocks
// are gone. Params without a generation are older than any with one.
func (g *generations) outdated(decode, start string, kept *upstream.Kept) bool {
	owner := generationOwner{decode, start, kept.EngineID}
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
