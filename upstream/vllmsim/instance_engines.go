package vllmsim

import "carryover/upstream/vllmsim/engine"

// HoldHandBacks stops each hand-back at the point until release is called. Further calls of release do nothing. Stats counts stopped
// hand-backs in HeldHandBacks. Restart and Close end them.
func (i *Instance) HoldHandBacks(at engine.HandBackPoint) (release func()) { return i.holds.Add(at) }

// ClearBlocks is a reset that succeeds although blocks are in use, which vLLM does not have. Pins end, their blocks and the prefix cache are
// overwritten, and AllBlocksCleared is published at once. A reader with an older ticket reads garbage. Blocks of requests under way do not
// change.
func (i *Instance) ClearBlocks() {
	for _, e := range i.engines() {
		e.ClearBlocks()
	}
}

// Pinned lists the current pins of the instance.
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

// SleepAndWake is vLLM's /sleep and /wake_up, but does not wait for pinned blocks. Pins end, the prefix cache becomes empty, and the memory
// is overwritten and registered again. A reader with an older registration or an older ticket reads garbage.
func (i *Instance) SleepAndWake() {
	for _, e := range i.engines() {
		e.SleepAndWake()
	}
}

// Pause is POST /pause with mode abort, without a wait for requests under way. Resume is POST /resume.
func (i *Instance) Pause() { i.ops.Pause() }

// Sleep is the first half of SleepAndWake. Resume is the other half.
func (i *Instance) Sleep() {
	i.SleepAndWake()
	i.ops.Sleep()
}

// Resume ends what Pause or Sleep began.
func (i *Instance) Resume() { i.ops.Resume() }
