package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"carryover/upstream"
)

// handleReady answers whether turns can be served: the server is not draining, and at least one instance of each role has answered, or only
// decode if it may serve alone. Quarantined prefill instances are reported, but do not make the server unready, because decode serves
// without them. Turns are also served without Redis, so that a replica without it is unready only if the operator asks for that.
func (s *Server) handleReady(c echo.Context) error {
	prefill, decode := s.deps.Fleet.Up(upstream.RolePrefill), s.deps.Fleet.Up(upstream.RoleDecode)
	answer := map[string]any{"prefill": prefill, "decode": decode, "store": "memory"}
	status, word := http.StatusOK, "ready"
	why := s.decodesAlone()
	needsPrefill := prefill == 0 && why == ""
	switch {
	case s.slots.Closed():
		status, word = http.StatusServiceUnavailable, "draining"
	case decode == 0 && s.deps.Fleet.Started(upstream.RoleDecode), needsPrefill && s.deps.Fleet.Started(upstream.RolePrefill):
		status, word = http.StatusServiceUnavailable, "no_instance"
	case decode == 0, needsPrefill:
		status, word = http.StatusServiceUnavailable, "starting"
	case prefill == 0:
		word, answer["why"] = "decode_only", why
	}
	quarantined := 0
	for _, engine := range s.deps.Fleet.Engines(upstream.RolePrefill) {
		if engine.Quarantined() {
			quarantined++
		}
	}
	if quarantined > 0 {
		answer["quarantined"] = quarantined
	}
	if s.deps.RedisState != nil {
		state := s.deps.RedisState()
		if status == http.StatusOK && state != RedisUp && s.cfg.RedisRequired {
			status, word = http.StatusServiceUnavailable, "store_down"
			delete(answer, "why")
		}
		answer["store"], answer["redis"] = "redis", state
	}
	answer["status"] = word
	return c.JSON(status, answer)
}

// decodesAlone says why turns are served while no prefill instance answers, "" if they are not.
func (s *Server) decodesAlone() string {
	routing := s.routing.Load()
	switch {
	case s.deps.Prefillers != nil:
		return "requests name their prefill instance"
	case routing.PrefillFailure != PrefillError:
		return "no prefill instance answers; decode serves 16 turns at once alone"
	case routing.DisaggThreshold > 0:
		return "no prefill instance answers; decode serves turns below the threshold alone"
	}
	return ""
}
