package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"

	"carryover/server/apierror"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
)

// handleTurn serves the endpoint of an API. Its stack frame, and the frames of the functions between it and the relay, exist for as long
// as a stream. While the relay waits, these frames must stay below 3.2 KiB, or each stream holds a stack of 16 KiB instead of 8: the
// runtime halves a stack if less than a quarter of it is used (runtime.shrinkstack). So the work before and after the relay is done in
// functions of its own.
func (s *Server) handleTurn(api body.API) echo.HandlerFunc {
	return func(c echo.Context) error {
		// The controller and the writes use net/http's writer, because echo's Flush hides errors.
		w, r := c.Response().Writer, c.Request()
		t := s.newTurn(api, r.Header)
		s.ended(w, t, s.guarded(w, r, t))
		return nil
	}
}

// newTurn makes the turn of a request, with an empty record.
func (s *Server) newTurn(api body.API, header http.Header) *turn {
	t := &turn{Request: request.Request{API: api}, routing: s.routing.Load(), legID: upstream.NewID()}
	t.record = record.NewBuilder(cmp.Or(request.ID(header), t.legID), api, request.Trace(header, s.deps.Sample))
	return t
}

// ended sends the error of a turn that failed before it was committed, and accounts for every turn.
func (s *Server) ended(w http.ResponseWriter, t *turn, err error) {
	if err != nil && !t.committed() {
		s.refuse(w, t, s.errors.Map(err))
	}
	if r := s.account(t, err); r.Aborted() || r.Status == record.StatusClientGone {
		// A plain return would end the chunked body cleanly, and the client would take a truncated answer for a complete one. A client
		// that has only closed its sending side would get an empty 200.
		panic(http.ErrAbortHandler)
	}
}

// guarded runs a turn within the limits of the server. It turns a panic into an error, so that a defect costs one turn only, and the
// turn's ticket is settled as after any other failure.
func (s *Server) guarded(w http.ResponseWriter, r *http.Request, t *turn) (err error) {
	defer s.recovered(t, &err)
	defer t.lease.GiveBack()
	defer t.share.GiveBack()
	defer t.proving.Discard()
	if err := s.intake.take(w, r, t); err != nil {
		return err
	}
	// The context ends when the client leaves, and when the server abandons its turns (Server.Run).
	ctx := r.Context()
	t.out = newCommitWriter(w, s.cfg.ClientWriteTimeout, s.errors.Map, t.API, &t.record, t.dropBody)
	return s.turns.run(ctx, t)
}

// recovered turns a panic into an error. It must be deferred.
func (s *Server) recovered(t *turn, err *error) {
	p := recover()
	if p == nil {
		return
	}
	s.cfg.Logger.Error("panic in a turn", "turn", t.record.ID(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	*err = fmt.Errorf("panic: %v", p)
	if t.committed() {
		*err = &record.AbortError{Err: *err}
	}
}

// refuse answers a turn with an error. Nothing may have been sent to the client before.
func (s *Server) refuse(w http.ResponseWriter, t *turn, e *apierror.Error) {
	t.record.Refused(w.Header(), e.Status, e.Code)
	if e.Status == record.StatusClientGone {
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.ClientWriteTimeout))
	e.Write(w, t.API)
}

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
	return c.JSON(http.StatusOK, map[string]any{
		"status": "ok", "cached_conversations": s.deps.Store.Len(), "evicted_stale": evicted,
	})
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
