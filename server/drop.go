package server

import (
	"cmp"
	"context"
	"slices"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream"
)

// dropCleared gives up branches whose blocks are gone because their engine has cleared its cache. There is nothing left to release.
// Every replica learns of a cleared cache by itself, so that this is right for tickets of other replicas too.
func (f *finder) dropCleared(ctx context.Context, t *turn) {
	t.dropped = ""
	t.branches = slices.DeleteFunc(t.branches, func(b convcache.Branch) bool {
		engine := f.deps.Fleet.Engine(upstream.RoleDecode, b.Decode.Instance)
		if engine == nil || !engine.Last().Pins.Void(b.FreshAsOf) {
			return false
		}
		t.dropped = record.ReasonInstanceCleared
		if f.dryRun {
			return true
		}
		f.pins.GiveUp(ctx, t.Conversation.Key, b.ID, t.Model)
		return true
	})
}

// dropInDoubt gives up the branches that descend from a quarantined incarnation. Decode frees the blocks of tickets, and notes are forgotten.
func (f *finder) dropInDoubt(ctx context.Context, t *turn) {
	t.branches = f.withoutDoubt(ctx, t, t.branches)
	t.notes = f.withoutDoubt(ctx, t, t.notes)
}

func (f *finder) withoutDoubt(ctx context.Context, t *turn, branches []convcache.Branch) (usable []convcache.Branch) {
	bad := 0
	for i := range branches {
		if f.lineages.InDoubt(branches[i].Lineage) {
			bad++
		}
	}
	if bad == 0 {
		return branches
	}
	t.dropped = cmp.Or(t.dropped, record.ReasonQuarantined)
	for _, b := range branches {
		switch {
		case !f.lineages.InDoubt(b.Lineage):
			usable = append(usable, b)
		case !f.dryRun:
			f.pins.GiveUp(ctx, t.Conversation.Key, b.ID, t.Model)
		}
	}
	return usable
}
