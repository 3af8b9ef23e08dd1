package server

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"carryover/server/apierror"
	"carryover/server/record"
	"carryover/upstream/body"
)

// answerFailed answers a failed request that is not a turn. If the client has left, the connection is aborted, because a client that has
// only closed its sending side would otherwise get an empty 200.
func (s *Server) answerFailed(w http.ResponseWriter, api body.API, err error) {
	known := s.errors.Map(err)
	if known.Status == record.StatusClientGone {
		panic(http.ErrAbortHandler)
	}
	known.Write(w, api)
}

// handleHealth answers /health with the fields of vLLM's multi-turn example. As in the example, each call evicts stale conversations.
func (s *Server) handleHealth(c echo.Context) error {
	evicted := s.deps.Store.EvictStale()
	return c.JSON(http.StatusOK, map[string]any{"status": "ok", "cached_conversations": s.deps.Store.Len(), "evicted_stale": evicted})
}

// onError answers errors that echo itself reports. Handlers write their own errors.
func (s *Server) onError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	status := http.StatusInternalServerError
	var he *echo.HTTPError
	if errors.As(err, &he) {
		status = he.Code
	}
	apierror.Refused(status, "internal", http.StatusText(status)).Write(c.Response(), body.Chat)
}
