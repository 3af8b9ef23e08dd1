package server

import (
	"net/http"
	"strings"
)

// prefillerHeader names the prefill instance of a request as host:port. llm-d's endpoint picker sets it, and removes it if decode is to
// serve alone (llm-d-router, pkg/common/routing). The header is read here and never forwarded.
const prefillerHeader = "X-Prefiller-Host-Port"

// namePrefiller reads which prefill instance is to serve the request, if requests may name one. Of several names the first counts, as in
// llm-d's sidecar (pkg/sidecar/proxy/chat_completions.go).
func (i *intake) namePrefiller(r *http.Request, t *turn) error {
	if i.prefillers == nil {
		return nil
	}
	first := namedPrefiller(r)
	if first == "" {
		return nil
	}
	name, err := i.prefillers.Admit(first)
	if err != nil {
		i.cfg.Logger.Warn("request names a prefill instance that is not permitted", "turn", t.record.ID(), "error", err)
		return refused(http.StatusForbidden, "prefiller_not_allowed", "The prefill instance that the request names is not permitted.")
	}
	t.prefiller = name
	return nil
}

// namedPrefiller returns the prefill instance that a request names, "" if it names none.
func namedPrefiller(r *http.Request) string {
	first, _, _ := strings.Cut(r.Header.Get(prefillerHeader), ",")
	return strings.TrimSpace(first)
}
