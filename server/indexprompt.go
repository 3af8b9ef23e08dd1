package server

import (
	"cmp"

	"carryover/upstream/fleet/prefixindex"
)

// indexPrompt tells the fleet the token ids of the prompt that the attempt's prefill has computed, so that the next prompt with the same
// beginning is sent to the instance that holds its KV.
func (a *attempt) indexPrompt(ids []uint32) {
	if len(ids) == 0 || len(a.Chain) == 0 {
		return
	}
	a.deps.Fleet.Prefixes.IndexPrompt(prefixindex.ComputedPrompt{
		Chain: a.Chain, Bytes: a.Body.Prompt().Bytes(), IDs: ids, BlockSize: a.pair.Prefill.BlockSize(), Model: a.Request.Model,
		Salt: cmp.Or(a.cacheSalt(a.lineages.At(a.pair.Prefill)), a.ownSalt()),
	})
}
