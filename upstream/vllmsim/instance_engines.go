package vllmsim

import (
	"carryover/upstream/vllmsim/engine"
)

// HoldHandBacks stops each hand-back that reaches the point until release is called, which may be called more than once. Stats counts
// the stopped ones in HeldHandBacks. Restart and Close end them.
func (i *Instance) HoldHandBacks(at engine.HandBackPoint) (release func()) { return i.holds.Add(at) }

// ClearBlocks is a reset that succeeds although blocks are in use, which vLLM does not have. Pins end, their blocks and the prefix cache are
// overwritten, and AllBlocksCleared is published at once. A reader with a ticket from before reads garbage. Blocks of requests under way
// stay as they are.
func (i *Instance) ClearBlocks() {
	for _, e := range i.engines() {
		e.ClearBlocks()
	}
}

// DropEvents withholds the next n batches of every rank from subscribers, as a full queue does. They can still be replayed.
func (i *Instance) DropEvents(n int) {
	for _, e := range i.engines() {
		e.Events.Drop(n)
	}
}

// Pinned lists what the instance pins now.
func (i *Instance) Pinned() (all []engine.Pinned) {
	for _, e := range i.engines() {
		all = append(all, e.Pinned()...)
	}
	return all
}

// EngineIDs returns the current engine ids, one for each rank.
func (i *Instance) EngineIDs() (ids []string) {
	for _, e := range i.engines() {
		ids = append(ids, e.ID)
	}
	return ids
}

// SleepAndWake is vLLM's /sleep and /wake_up without waiting for pinned blocks: pins end, the prefix cache becomes empty, the memory is
// overwritten and registered again. A reader with an older registration, or of blocks that were pinned before, reads garbage.
func (i *Instance) SleepAndWake() {
	for _, e := range i.engines() {
		e.SleepAndWake()
	}
}

// Pause is POST /pause with mode abort, without waiting for requests under way. Resume is POST /resume.
func (i *Instance) Pause() { i.ops.Pause() }

// Sleep is the first half of SleepAndWake. Resume is the other.
func (i *Instance) Sleep() {
	i.SleepAndWake()
	i.ops.Sleep()
}

// Resume ends what Pause or Sleep began.
func (i *Instance) Resume() { i.ops.Resume() }
