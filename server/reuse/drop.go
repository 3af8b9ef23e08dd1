package reuse

import (
	"context"
	"slices"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/storetime"
)

// dropOlder gives up the branches of other epochs. Decode frees the blocks of tickets, and notes are forgotten.
func (f *Finder) dropOlder(ctx context.Context, of *request.Request, looked *Lookup) {
	epoch := f.deps.Epoch.Now()
	for _, branches := range [...]*[]convcache.KeyedBranch{&looked.Branches, &looked.Notes} {
		*branches = slices.DeleteFunc(*branches, func(b convcache.KeyedBranch) bool {
			if b.Epoch == epoch {
				return false
			}
			looked.dropped = record.ReasonQuarantined
			bounded, cancel := storetime.Limit(ctx, f.cfg.StoreTimeout)
			defer cancel()
			f.deps.Pins.GiveUp(bounded, b.Key, b.ID, of.Model)
			return true
		})
	}
}
