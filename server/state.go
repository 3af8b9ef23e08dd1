package server

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"carryover/convcache"
	"carryover/server/admission"
	"carryover/server/record"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

type health struct {
	fleet   *fleet.Fleet
	store   convcache.Store
	slots   *admission.Slots
	routing func() *turn.RoutingConfig
	redis   func() string // as Deps.RedisState
	named   bool          // requests name their prefill instance
}

func (h *health) serve(add func(method, path string, handler echo.HandlerFunc)) {
	add(http.MethodGet, "/health", h.handleHealth)
	add(http.MethodGet, "/healthz", func(c echo.Context) error { return c.JSON(http.StatusOK, map[string]any{"status": "ok"}) })
	add(http.MethodGet, "/readyz", h.handleReady)
}

// handleHealth answers /health with the fields of vLLM's multi-turn example. As in the example, each call evicts stale conversations.
func (h *health) handleHealth(c echo.Context) error {
	evicted := h.store.EvictStale()
	return c.JSON(http.StatusOK, map[string]any{"status": "ok", "cached_conversations": h.store.Len(), "evicted_stale": evicted})
}

// handleReady answers whether turns can be served: the server is not draining, and at least one instance of each role has answered, or only
// decode if it may serve alone. Quarantined prefill instances are reported, but do not make the server unready, because decode serves
// without them. Turns are also served without Redis.
func (h *health) handleReady(c echo.Context) error {
	word, why := h.verdict()
	answer := map[string]any{
		"status": word, "prefill": h.fleet.Up(upstream.RolePrefill), "decode": h.fleet.Up(upstream.RoleDecode), "store": "memory",
	}
	status := http.StatusServiceUnavailable
	if word == wordReady || word == wordDecodeOnly {
		status = http.StatusOK
	}
	if word == wordDecodeOnly {
		answer["why"] = why
	}
	quarantined := 0
	for _, engine := range h.fleet.Engines(upstream.RolePrefill) {
		if engine.Quarantined() {
			quarantined++
		}
	}
	if quarantined > 0 {
		answer["quarantined"] = quarantined
	}
	if h.redis != nil {
		answer["store"], answer["redis"] = "redis", h.redis()
	}
	return c.JSON(status, answer)
}

const (
	wordReady      = "ready"
	wordDecodeOnly = "decode_only"
)

func (h *health) verdict() (word, why string) {
	prefill, decode := h.fleet.Up(upstream.RolePrefill), h.fleet.Up(upstream.RoleDecode)
	alone := h.decodesAlone()
	needsPrefill := prefill == 0 && alone == ""
	switch {
	case h.slots.Closed():
		return "draining", "this replica drains"
	case decode == 0 && h.fleet.Started(upstream.RoleDecode):
		return "no_instance", "no decode instance answers"
	case needsPrefill && h.fleet.Started(upstream.RolePrefill):
		return "no_instance", "no prefill instance answers"
	case decode == 0:
		return "starting", "no decode instance has answered yet"
	case needsPrefill:
		return "starting", "no prefill instance has answered yet"
	case prefill == 0:
		return wordDecodeOnly, alone
	}
	return wordReady, ""
}

func (h *health) decodesAlone() string {
	routing := h.routing()
	switch {
	case h.named:
		return "requests name their prefill instance"
	case routing.PrefillFailure != turn.PrefillError:
		return "no prefill instance answers; decode serves 16 turns at once alone"
	case routing.DisaggThreshold > 0:
		return "no prefill instance answers; decode serves turns below the threshold alone"
	}
	return ""
}

// Counts returns what was counted until now. Its parts need not be of one moment.
func (s *Server) Counts() record.Counts {
	counted := s.Pins.Counts()
	counted.Stranded, counted.Quarantines = s.turns.Stranded.Load(), s.quarantines.Quarantines.Load()
	if clients := s.clients.Load(); clients != nil {
		counted.Shed = clients.Shed()
	}
	return counted
}

// Ready returns the word of /readyz. why is a sentence about why no turns are served, or why decode serves alone; it is "" if all is well.
func (s *Server) Ready() (word, why string) { return s.health.verdict() }

// Drain drains an instance or takes it back, here and at the replicas that share Redis. It reports whether there is such an instance, and
// whether Redis has it already; else Redis has it within a second of its next answer.
func (s *Server) Drain(ctx context.Context, role upstream.Role, name string, drain bool) (found, shared bool) {
	if !s.deps.Fleet.Drain(role, name, drain) {
		return false, false
	}
	engine := s.deps.Fleet.Engine(role, name)
	return true, engine != nil && s.quarantines.ShareDrain(ctx, engine)
}

// HandBackMemory returns how many bytes the ids of tickets use, 0 if nothing is handed back.
func (s *Server) HandBackMemory() int64 {
	used, _ := s.Pins.Arena().Use()
	return used
}
