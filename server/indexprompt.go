package server

import (
	"cmp"

	"carryover/upstream/fleet"
)

// indexPrompt tells the fleet which tokens the turn's prompt is for the attempt's start of prefill, so that the next one that begins like it is sent
// where that is held.
func (s *turns) indexPrompt(t *turn, p *pair, ids []uint32) {
	if len(ids) == 0 || len(t.chain) == 0 {
		return
	}
	s.deps.Fleet.IndexPrompt(fleet.ComputedPrompt{
		Chain: t.chain, Bytes: t.req.PromptBytes(), IDs: ids, BlockSize: p.prefill.BlockSize(), Model: t.model,
		Salt: cmp.Or(t.cacheSalt(p, s.lineages.at(p.prefill)), t.ownSalt()),
	})
}
