package e2e

import (
	"testing"

	"carryover/server/record"
)

// prefillerHeader is how llm-d's endpoint picker names the prefill instance of a request.
const prefillerHeader = "X-Prefiller-Host-Port"

// named holds a turn whose header names a prefill instance.
func (h *thread) named(t *testing.T, prefill, reuse string) *record.Turn {
	t.Helper()
	h.header.Set(prefillerHeader, prefill)
	rec := h.turn(t, reuse)
	h.header.Del(prefillerHeader)
	return rec
}
