package reuse

import (
	"cmp"
	"context"
	"slices"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
)

// dropCleared gives up branches whose blocks are gone because their engine has cleared its cache. There is nothing left to release.
// Every replica learns of a cleared cache by itself, so that this is right for tickets of other replicas too.
func (f *Finder) dropCleared(ctx context.Context, of *request.Request, looked *Lookup) {
	looked.Branches = slices.DeleteFunc(looked.Branches, func(b convcache.KeyedBranch) bool {
		engine := f.deps.Fleet.Engine(upstream.RoleDecode, b.Decode.Instance)
		if engine == nil || !engine.Last().Pins.Void(b.FreshAsOf) {
			return false
		}
		looked.dropped = record.ReasonInstanceCleared
		f.deps.Pins.GiveUp(ctx, b.Key, b.ID, of.Model)
		return true
	})
}

// dropOlder gives up the branches of other epochs. Decode frees the blocks of tickets, and notes are forgotten.
func (f *Finder) dropOlder(ctx context.Context, of *request.Request, looked *Lookup) {
	epoch := f.deps.Epoch.Now()
	for _, branches := range [...]*[]convcache.KeyedBranch{&looked.Branches, &looked.Notes} {
		*branches = slices.DeleteFunc(*branches, func(b convcache.KeyedBranch) bool {
			if b.Epoch == epoch {
				return false
			}
			looked.dropped = cmp.Or(looked.dropped, record.ReasonQuarantined)
			f.deps.Pins.GiveUp(ctx, b.Key, b.ID, of.Model)
			return true
		})
	}
}
