package kvevents

import "time"

// mediumGPU is where the blocks are that requests compute with, whatever the device (measured on a CPU, vLLM 0.32). Other media are
// those that blocks are offloaded to.
const mediumGPU = "GPU"

// localityRemote is that of blocks which another engine stores.
const localityRemote = "REMOTE"

// tell hands the event to a sink, if it is one that says something about the engine's own cache. Of a model with several groups of
// layers the first group stands for all: each group has blocks and events of its own.
func (e *event) tell(sink Sink, at time.Time) {
	if e.name == nameCleared {
		sink.Cleared(at)
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

// whole reports whether it is known which tokens belong to which block. Groups of layers that look at the last tokens only leave
// blocks out.
func (b *Blocks) whole() bool {
	return b.Size > 0 && len(b.Tokens)%b.Size == 0 && len(b.Tokens)/b.Size == len(b.Hashes) &&
		(b.Extra == nil || len(b.Extra) == len(b.Hashes))
}
