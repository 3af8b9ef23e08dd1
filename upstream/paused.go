package upstream

import "strings"

// pausedWords is how vLLM 0.33 begins its refusals while it is paused (v1/engine/core.py).
const pausedWords = "Generation is paused"

// Paused reports whether the engine itself refused the request because it is paused (POST /pause), before it scheduled
// anything: by a 503, or by the first event of a stream. Measured on a real pair of 0.33: decode makes prefill free
// the blocks of a hand-over, so the hand-over is spent; decode's blocks of a ticket stay pinned, and nobody reads
// them. A 503 with other words may come from something in front of the engine, and says nothing about pausing.
func (e *LegError) Paused() bool {
	return e.Kind == Status && strings.HasPrefix(e.Message, pausedWords)
}
