package fleet

import "strings"

// Foreign reports whether an answer with this id can't be the one to leg. vLLM builds the
// id of its answer from X-Request-Id, and a response has the one that it was asked to have; behind a gateway with ids of its own it is another,
// and nothing can be told then. An engine that has echoed once is held to it, in its next
// starts too.
func (s *Incarnation) Foreign(leg, id string) bool {
	h := &s.engine.habits
	h.mu.Lock()
	defer h.mu.Unlock()
	if rest, own := strings.CutSuffix(id, leg); own && (strings.HasSuffix(rest, "-") || rest == "resp_") {
		h.echoes = true
		return false
	}
	return id != "" && h.echoes
}
