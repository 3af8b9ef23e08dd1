package upstream

import "strings"

// pausedWords begin what vLLM 0.33 says to requests while it is paused (v1/engine/core.py).
const pausedWords = "Generation is paused"

// Paused reports whether the engine itself has refused the request because it is paused (POST /pause), before anything of it was
// scheduled: by a 503, or in a stream by its first event. Measured on a real pair of 0.33: of a hand-over decode has prefill's blocks
// freed, so that it is spent, and of a ticket decode's blocks stay pinned, and nobody reads them. A 503 of other words may be that of
// something in front of the engine, and says nothing of the kind.
func (e *LegError) Paused() bool {
	return e.Kind == Status && strings.HasPrefix(e.Message, pausedWords)
}
