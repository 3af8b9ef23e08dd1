package ops

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/wire"
)

// pausing is the state of an instance after POST /pause and /sleep (vLLM's development endpoints, VLLM_SERVER_DEV_MODE). Both take effect at
// once and answer when nothing is under way any more. Blocks that wait for a reader count as under way (measured on a real pair of 0.33).
type pausing struct {
	mu       sync.Mutex    // guards the rest
	refuses  bool          // new requests get 503: /pause with mode abort or wait
	holds    bool          // new requests wait: /pause with mode keep, and /sleep
	sleeps   bool          // the answer of /is_sleeping
	asleep   bool          // /sleep was answered: metrics tell of a sleep from then on (v1/engine/async_llm.py)
	released chan struct{} // closed by /resume and /wake_up, nil while the instance is not paused
}

const (
	pathPause, pathResume, pathIsPaused   = "/pause", "/resume", "/is_paused"
	pathSleep, pathWakeUp, pathIsSleeping = "/sleep", "/wake_up", "/is_sleeping"
)

// pauses answers the endpoints that pause, and reports whether the request was for one.
func (o *Endpoints) pauses(w http.ResponseWriter, req *http.Request) (done bool, err error) {
	p := &o.pausing
	switch req.Method + " " + req.URL.Path {
	case "POST " + pathPause:
		p.begin(req.URL.Query().Get("mode") != "keep", false)
		if err := o.drained(req.Context()); err != nil {
			return true, err
		}
		return true, wire.WriteJSON(w, http.StatusOK, map[string]string{"status": "paused"})
	case "POST " + pathSleep:
		p.begin(false, true)
		if err := o.drained(req.Context()); err != nil {
			return true, err
		}
		p.sleep()
		w.WriteHeader(http.StatusOK)
		return true, nil
	case "POST " + pathResume:
		p.end()
		return true, wire.WriteJSON(w, http.StatusOK, map[string]string{"status": "resumed"})
	case "POST " + pathWakeUp:
		p.end()
		w.WriteHeader(http.StatusOK)
		return true, nil
	case "GET " + pathIsPaused, "GET " + pathIsSleeping:
		p.mu.Lock()
		is := p.released != nil && (p.sleeps || req.URL.Path == pathIsPaused)
		p.mu.Unlock()
		return true, wire.WriteJSON(w, http.StatusOK, map[string]bool{strings.TrimPrefix(req.URL.Path, "/"): is})
	}
	return false, nil
}

// Pause is POST /pause with mode abort, without waiting for requests under way. Resume is POST /resume.
func (o *Endpoints) Pause() { o.pausing.begin(true, false) }

// Sleep is POST /sleep without waiting for requests under way and pinned blocks. Resume is POST /wake_up.
func (o *Endpoints) Sleep() {
	o.pausing.begin(false, true)
	o.pausing.sleep()
}

// Resume ends what Pause or Sleep began.
func (o *Endpoints) Resume() { o.pausing.end() }

func (p *pausing) begin(refuses, sleeps bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses, p.holds, p.sleeps = refuses, !refuses, sleeps
	if p.released == nil {
		p.released = make(chan struct{})
	}
}

// awake is the value of vllm:engine_sleep_state.
func (p *pausing) awake() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asleep {
		return 0
	}
	return 1
}

func (p *pausing) sleep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = p.sleeps
}

func (p *pausing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released != nil {
		close(p.released)
	}
	p.refuses, p.holds, p.sleeps, p.asleep, p.released = false, false, false, false, nil
}

// state returns whether new requests are refused, and the channel that they wait for, nil for none.
func (p *pausing) state() (refuses bool, waits <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds {
		waits = p.released
	}
	return p.refuses, waits
}

// drained waits until no block is pinned and no request runs, or until the pause is over.
func (o *Endpoints) drained(ctx context.Context) error {
	o.pausing.mu.Lock()
	over := o.pausing.released
	o.pausing.mu.Unlock()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if o.idle() {
			return nil
		}
		select {
		case <-tick.C:
		case <-over:
			return nil
		case <-ctx.Done():
			return wire.ErrConnectionGone
		}
	}
}

func (o *Endpoints) idle() bool {
	for _, e := range o.engines() {
		if s := e.Snapshot(); s.Pins > 0 || s.Running > 0 {
			return false
		}
	}
	return true
}

// errPaused is the error with which vLLM 0.33 refuses requests while it is paused (v1/engine/core.py).
func errPaused() *wire.Error {
	return &wire.Error{Status: http.StatusServiceUnavailable, Kind: "ServiceUnavailableError", Message: "Generation is paused. Please retry after it resumes."}
}

// HoldBack handles a request for an answer while the instance is paused or sleeps: the request waits or is refused, a stream by its first
// event. answered says that it was refused. The refusal spends a hand-over that the request brings: its blocks are freed at their owner.
// The blocks of a ticket, which decode holds, stay pinned.
func (o *Endpoints) HoldBack(w http.ResponseWriter, req *http.Request, body []byte) (answered bool, err error) {
	if !wire.Generates(req.URL.Path) {
		return false, nil
	}
	refuses, waits := o.pausing.state()
	if waits != nil {
		select {
		case <-waits:
		case <-req.Context().Done():
			return true, wire.ErrConnectionGone
		}
	}
	if !refuses {
		return false, nil
	}
	var told struct {
		Stream bool            `json:"stream"`
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	_ = json.Unmarshal(body, &told) // even a body that is not a request is refused
	if p, err := engine.ParseParams(told.Params); err == nil && p.Decodes() {
		o.engines()[0].Connector.Rejected(p)
	}
	if !told.Stream || req.URL.Path == wire.PathMessages || req.URL.Path == wire.PathResponses {
		return true, errPaused()
	}
	refusal, s := errPaused(), wire.NewEvents(w)
	if req.URL.Path == wire.PathChat {
		refusal.Kind = "InternalServerError"
	}
	return true, errors.Join(s.Open(), s.Write("", refusal.Body()), s.Done())
}
