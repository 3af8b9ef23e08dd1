package server

import (
	"cmp"

	"carryover/server/pick"
	"carryover/upstream/fleet/prefixindex"
)

// indexPrompt tells the fleet the token ids of the prompt that the attempt's prefill has computed, so that the next prompt with the same
// beginning is sent to the instance that holds its KV.
func (s *turns) indexPrompt(t *turn, p *pick.Pair, ids []uint32) {
	if len(ids) == 0 || len(t.chain) == 0 {
		return
	}
	s.deps.Fleet.Prefixes.IndexPrompt(prefixindex.ComputedPrompt{
		Chain: t.chain, Bytes: t.body.Prompt().Bytes(), IDs: ids, BlockSize: p.Prefill.BlockSize(), Model: t.Model,
		Salt: cmp.Or(t.cacheSalt(p, s.lineages.At(p.Prefill)), t.ownSalt()),
	})
}
