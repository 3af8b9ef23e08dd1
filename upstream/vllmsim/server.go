package vllmsim

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"carryover/upstream/vllmsim/api"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/ops"
	"carryover/upstream/vllmsim/wire"
)

// maxBody bounds the body of a request.
const maxBody = 64 << 20

// handler answers HTTP as vLLM's API server does.
type handler struct {
	instance *Instance
	api      *api.Endpoints
	ops      *ops.Endpoints
	underWay engine.Gate
	requests atomic.Int64
}

func newHandler(i *Instance) *handler {
	return &handler{instance: i, api: api.New(i.config, i.engines, i.tok, &i.holds), ops: ops.New(i.config, i.engines)}
}

// ServeHTTP answers as vLLM's API server does.
func (i *Instance) ServeHTTP(w http.ResponseWriter, req *http.Request) { i.handler.ServeHTTP(w, req) }

// ServeHTTP answers a request, or closes its connection.
func (h *handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !h.underWay.Enter() {
		wire.Kill(w)
		return
	}
	defer h.underWay.Leave()
	w.Header().Set("Server", "uvicorn")
	err := h.serve(w, req)
	switch {
	case err == nil:
	case errors.Is(err, wire.ErrConnectionGone) || req.Context().Err() != nil:
		wire.Kill(w)
	default:
		refusal := wire.AsError(err)
		// The status line is already out only if the connection failed in the middle, and then nobody reads this.
		_ = wire.WriteJSON(w, refusal.Status, wire.ErrorAnswer(refusal, req.URL.Path, h.instance.config()))
	}
}

func (h *handler) serve(w http.ResponseWriter, req *http.Request) error {
	i := h.instance
	if strings.HasPrefix(req.URL.Path, "/_sim/") {
		return h.serveControl(w, req)
	}
	h.requests.Add(1)
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		return wire.ErrConnectionGone
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	i.record.add(req, body)
	if i.config().RequestIDHeaders {
		id := req.Header.Get("X-Request-Id")
		if id == "" {
			id = wire.RandomHex(16)
			req.Header.Set("X-Request-Id", id)
		}
		w.Header().Set("X-Request-Id", id)
	}
	f := i.faults.Pick(faultableOf(req.URL.Path, body))
	if f != nil {
		w = wire.NewFaultWriter(w, f, i.clock, req)
	}
	if done, err := h.faulty(f, w, req, body); done {
		return err
	}
	if h.unauthorized(req) {
		return wire.WriteJSON(w, http.StatusUnauthorized, map[string]string{"error": "Unauthorized"})
	}
	if done, err := h.ops.HoldBack(w, req, body); done {
		return err
	}
	if done, err := h.ops.Serve(w, req, f); done {
		return err
	}
	if done, err := h.api.Serve(w, req, f); done {
		return err
	}
	return wire.WriteNotFound(w)
}

// unauthorized checks the bearer token, which protects only /v1.
func (h *handler) unauthorized(req *http.Request) bool {
	key := h.instance.config().APIKey
	return key != "" && strings.HasPrefix(req.URL.Path, "/v1") && req.Header.Get("Authorization") != "Bearer "+key
}
