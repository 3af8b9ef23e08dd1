package server

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"carryover/upstream"
)

// routes builds the table of everything that is served. Paths are matched exactly
// and in their escaped form: engines have endpoints such as /sleep and
// /reset_prefix_cache that no spelling of a path may reach, and vLLM's --api-key
// does not guard them.
func (s *Server) routes() *echo.Echo {
	e := echo.New()
	e.HTTPErrorHandler = s.onError
	e.IPExtractor = echo.ExtractIPDirect()
	allowed := map[string]string{}
	add := func(method, path string, handler echo.HandlerFunc) {
		e.Add(method, path, handler)
		allowed[path] = method
	}
	add(http.MethodPost, "/v1/chat/completions", s.handleTurn(upstream.Chat))
	add(http.MethodPost, "/v1/completions", s.handleTurn(upstream.Text))
	add(http.MethodGet, "/v1/models", s.handleModels)
	add(http.MethodGet, "/health", s.handleHealth)
	add(http.MethodGet, "/healthz", s.handleAlive)
	add(http.MethodGet, "/readyz", s.handleReady)
	add(http.MethodGet, "/version", s.handleVersion)
	e.Pre(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			return exact(c, allowed, next)
		}
	})
	return e
}

func exact(c echo.Context, allowed map[string]string, next echo.HandlerFunc) error {
	r := c.Request()
	if !clientRequestID.MatchString(r.Header.Get("X-Request-Id")) {
		c.Response().Header().Set("X-Request-Id", newID())
	} else {
		c.Response().Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
	}
	method, known := allowed[r.URL.EscapedPath()]
	switch {
	case !known || r.URL.Host != "" || strings.HasPrefix(r.RequestURI, "//"):
		writeError(c.Response(), refused(http.StatusNotFound, "not_found", "Unknown endpoint."))
		return nil
	case r.Method != method:
		c.Response().Header().Set("Allow", method)
		writeError(c.Response(), refused(http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed."))
		return nil
	}
	return next(c)
}
