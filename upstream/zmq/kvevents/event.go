package kvevents

// mediumGPU is the medium of the blocks that requests compute with, whatever the device (measured on a CPU, vLLM
// 0.32). Blocks on other media are offloaded.
const mediumGPU = "GPU"

// localityRemote is the locality of blocks that another engine stores.
const localityRemote = "REMOTE"

// tell hands the event to a sink if it concerns the engine's own cache. Of a model with several groups of layers the
// first group stands for all: each group has its own blocks and events.
func (e *event) tell(sink Sink) {
	if e.name == nameCleared {
		sink.Started()
		return
	}
	own := (e.medium == "" || e.medium == mediumGPU) && e.locality != localityRemote && e.group == 0
	if !own || len(e.blocks.Hashes) == 0 {
		return
	}
	switch e.name {
	case nameStored:
		if e.blocks.whole() {
			sink.Stored(e.blocks)
		}
	case nameRemoved:
		sink.Removed(e.blocks.Hashes)
	}
}

// whole reports whether it is known which tokens belong to which block. Groups of sliding-window layers leave blocks
// out.
func (b *Blocks) whole() bool {
	return b.Size > 0 && len(b.Tokens)%b.Size == 0 && len(b.Tokens)/b.Size == len(b.Hashes) &&
		(b.Extra == nil || len(b.Extra) == len(b.Hashes))
}
