package vllmsim

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	"carryover/upstream/vllmsim/wire"
)

const maxBody = 64 << 20

// ServeHTTP answers a request like vLLM's API server, or closes its connection.
func (i *Instance) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !i.underWay.Enter() {
		wire.Kill(w)
		return
	}
	defer i.underWay.Leave()
	w.Header().Set("Server", "uvicorn")
	err := i.answer(w, req)
	switch {
	case err == nil:
	case errors.Is(err, wire.ErrConnectionGone) || req.Context().Err() != nil:
		wire.Kill(w)
	default:
		refusal := wire.AsError(err)
		// The status line is already out only if the connection failed in the middle; then nobody reads this.
		_ = wire.WriteJSON(w, refusal.Status, wire.ErrorAnswer(refusal, req.URL.Path, i.config()))
	}
}

func (i *Instance) answer(w http.ResponseWriter, req *http.Request) error {
	if strings.HasPrefix(req.URL.Path, "/_sim/") {
		return i.serveControl(w, req)
	}
	i.requests.Add(1)
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
	if done, err := i.faulty(f, w, req, body); done {
		return err
	}
	if i.unauthorized(req) {
		return wire.WriteJSON(w, http.StatusUnauthorized, map[string]string{"error": "Unauthorized"})
	}
	if done, err := i.ops.HoldBack(w, req, body); done {
		return err
	}
	if done, err := i.ops.Serve(w, req, f); done {
		return err
	}
	if done, err := i.api.Serve(w, req, f); done {
		return err
	}
	return wire.WriteNotFound(w)
}

// unauthorized checks the bearer token, which protects only /v1.
func (i *Instance) unauthorized(req *http.Request) bool {
	key := i.config().APIKey
	return key != "" && strings.HasPrefix(req.URL.Path, "/v1") && req.Header.Get("Authorization") != "Bearer "+key
}
