package ops

import (
	"net/http"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

// Endpoints answers the endpoints for operators and routers.
type Endpoints struct {
	config  func() *config.Config
	engines func() []*engine.Engine // current engine of every rank
	pausing pausing
}

// New returns the endpoints of an instance.
func New(cfg func() *config.Config, engines func() []*engine.Engine) *Endpoints {
	return &Endpoints{config: cfg, engines: engines}
}

// Serve answers a request for one of its endpoints. done is false for any other request.
func (o *Endpoints) Serve(w http.ResponseWriter, req *http.Request, f *fault.Active) (done bool, err error) {
	if done, err := o.pauses(w, req); done {
		return true, err
	}
	switch req.Method + " " + req.URL.Path {
	case "GET /version":
		err = wire.WriteJSON(w, http.StatusOK, map[string]string{"version": o.config().Version})
	case "GET /health", "GET /ping", "POST /ping":
		o.serveHealth(w)
	case "POST /reset_prefix_cache":
		err = o.serveReset(w)
	case "GET " + PathMetrics:
		err = o.serveMetrics(w, f)
	default:
		return false, nil
	}
	return true, err
}

func (o *Endpoints) serveHealth(w http.ResponseWriter) {
	status := http.StatusOK
	for _, e := range o.engines() {
		if e.Dead() {
			status = http.StatusServiceUnavailable
		}
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}

// serveReset is POST /reset_prefix_cache, which vLLM has with VLLM_SERVER_DEV_MODE. It fails while blocks are in use or pinned
// (v1/core/block_pool.py, reset_prefix_cache). AllBlocksCleared is published with the next step (measured on 0.32).
func (o *Endpoints) serveReset(w http.ResponseWriter) error {
	success := true
	for _, e := range o.engines() {
		success = e.Reset() && success
	}
	return wire.WriteJSON(w, http.StatusOK, map[string]bool{"success": success})
}
