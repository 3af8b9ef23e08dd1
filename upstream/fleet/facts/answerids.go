package facts

import (
	"strings"
	"sync"
)

// AnswerIDs is whether an engine's answers carry the id of the request. It belongs to the gateway in front of the
// engine, so it outlasts restarts.
type AnswerIDs struct {
	mu     sync.Mutex
	echoes bool
}

// Foreign reports whether an answer with this id can't belong to the leg with the id leg. vLLM makes the id of an
// answer from the leg's X-Request-Id, and a Responses answer has the id that was asked for. A gateway may replace the
// ids; then nothing can be said. An engine that has echoed an id once is expected to do so always, also after
// restarts.
func (h *AnswerIDs) Foreign(leg, id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rest, own := strings.CutSuffix(id, leg); own && (strings.HasSuffix(rest, "-") || rest == "resp_") {
		h.echoes = true
		return false
	}
	return id != "" && h.echoes
}
