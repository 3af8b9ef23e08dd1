package ops

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/wire"
)

// pausing is the state of an instance after POST /pause and /sleep (vLLM's development endpoints, VLLM_SERVER_DEV_MODE). Both take effect at
// once, and answer when nothing is under way any more. Blocks that wait for a reader count as under way (measured on a real pair of 0.33).
type pausing struct {
	mu  sync.Mutex // guards now
	now paused
}

// paused is the state. The zero value means not paused.
type paused struct {
	refuses  bool          // new requests get 503: /pause with mode abort or wait. Otherwise they wait: with mode keep, and after /sleep
	sleeps   bool          // the answer of /is_sleeping
	asleep   bool          // /sleep was answered; from now on metrics report a sleep (v1/engine/async_llm.py)
	released chan struct{} // closed by /resume and /wake_up, nil while the instance is not paused
}

// pauses answers the endpoints that pause. done is false for any other request.
func (o *Endpoints) pauses(w http.ResponseWriter, req *http.Request) (done bool, err error) {
	p := &o.pausing
	switch req.Method + " " + req.URL.Path {
	case "POST /pause":
		p.begin(req.URL.Query().Get("mode") != "keep", false)
		if err = o.drained(req.Context()); err == nil {
			err = wire.WriteJSON(w, http.StatusOK, map[string]string{"status": "paused"})
		}
	case "POST /sleep":
		p.begin(false, true)
		if err := o.drained(req.Context()); err != nil {
			return true, err
		}
		p.sleep()
		w.WriteHeader(http.StatusOK)
	case "POST /resume":
		p.end()
		err = wire.WriteJSON(w, http.StatusOK, map[string]string{"status": "resumed"})
	case "POST /wake_up":
		p.end()
		w.WriteHeader(http.StatusOK)
	case "GET /is_paused":
		err = wire.WriteJSON(w, http.StatusOK, map[string]bool{"is_paused": p.state().released != nil})
	case "GET /is_sleeping":
		err = wire.WriteJSON(w, http.StatusOK, map[string]bool{"is_sleeping": p.state().sleeps})
	default:
		return false, nil
	}
	return true, err
}

// Pause is POST /pause with mode abort, without a wait for requests under way. Resume is POST /resume.
func (o *Endpoints) Pause() { o.pausing.begin(true, false) }

// Sleep is POST /sleep, without a wait for requests under way and pinned blocks. Resume is POST /wake_up.
func (o *Endpoints) Sleep() {
	o.pausing.begin(false, true)
	o.pausing.sleep()
}

// Resume ends what Pause or Sleep began.
func (o *Endpoints) Resume() { o.pausing.end() }

func (p *pausing) begin(refuses, sleeps bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.refuses, p.now.sleeps = refuses, sleeps
	if p.now.released == nil {
		p.now.released = make(chan struct{})
	}
}

func (p *pausing) sleep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.asleep = p.now.sleeps
}

func (p *pausing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.released != nil {
		close(p.now.released)
	}
	p.now = paused{}
}

func (p *pausing) state() paused {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// drained waits until no block is pinned and no request runs, or until the pause ends.
func (o *Endpoints) drained(ctx context.Context) error {
	over := o.pausing.state().released
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

// errPaused is the error of vLLM 0.33 for requests during a pause (v1/engine/core.py).
func errPaused() *wire.Error {
	return &wire.Error{Status: http.StatusServiceUnavailable, Kind: "ServiceUnavailableError", Message: "Generation is paused. Please retry after it resumes."}
}

// HoldBack handles a request for an answer during a pause or sleep: the request waits or is refused, a stream by its first event. answered
// means that it was refused. The refusal spends the request's hand-over: its owner frees the blocks. The blocks of a ticket, which decode
// holds, stay pinned.
func (o *Endpoints) HoldBack(w http.ResponseWriter, req *http.Request, body []byte) (answered bool, err error) {
	if !wire.Generates(req.URL.Path) {
		return false, nil
	}
	state := o.pausing.state()
	if !state.refuses {
		if state.released == nil {
			return false, nil
		}
		select {
		case <-state.released:
			return false, nil
		case <-req.Context().Done():
			return true, wire.ErrConnectionGone
		}
	}
	var told struct {
		Stream bool            `json:"stream"`
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	_ = json.Unmarshal(body, &told) // even an invalid body is refused
	if p, err := engine.ParseParams(told.Params); err == nil && p.Decodes() {
		o.engines()[0].Connector.Rejected(p)
	}
	if !told.Stream || req.URL.Path == wire.PathMessages || req.URL.Path == wire.PathResponses {
		return true, errPaused()
	}
	refusal := errPaused()
	if req.URL.Path == wire.PathChat {
		refusal.Kind = "InternalServerError"
	}
	s := wire.NewEvents(w)
	s.Write("", refusal.Body())
	return true, s.Done()
}
