package turn

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"carryover/server/apierror"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/sse"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Handler runs the turns of requests. It sends the errors of turns that fail before they are committed, and has observers told of every
// turn.
type Handler struct {
	cfg  Config
	deps Deps

	routing  atomic.Pointer[RoutingConfig] // of turns that begin from now on
	budget   *RetryBudget
	hopeless *hopeless
	streamed sse.Memory    // the memory of relays
	rescues  chan struct{} // has one element for each rescue that runs
	stranded atomic.Uint64 // hand-overs that decode has not taken, and that no rescue has freed
}

// New returns a handler of turns.
func New(cfg Config, deps Deps) *Handler {
	return &Handler{cfg: cfg, deps: deps, budget: newRetryBudget(), hopeless: newHopeless(), rescues: make(chan struct{}, mostRescues)}
}

// SetRouting changes the routing of turns that begin from now on.
func (h *Handler) SetRouting(cfg RoutingConfig) { h.routing.Store(&cfg) }

// Routing returns the routing of turns that begin now.
func (h *Handler) Routing() *RoutingConfig { return h.routing.Load() }

// Held returns how many bytes of requests are held, and for how many clients.
func (h *Handler) Held() (bytes int64, clients int) { return h.deps.Requests.Held() }

// Stranded returns how many hand-overs nobody has taken.
func (h *Handler) Stranded() uint64 { return h.stranded.Load() }

// Retries returns the budget for what is tried again.
func (h *Handler) Retries() *RetryBudget { return h.budget }

// Serve runs the turn of a request to an API. It panics with http.ErrAbortHandler where the connection must be aborted.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, api body.API) {
	t := h.begin(r, api)
	h.end(w, t, h.guarded(w, r, t))
}

// begin makes the turn of a request. It is a function of its own, as end and again are, so that its frame is not on the stack of open streams.
func (h *Handler) begin(r *http.Request, api body.API) *turn {
	t := &turn{Request: request.Request{API: api}, began: time.Now(), routing: h.routing.Load(), legID: upstream.NewID()}
	t.record = record.NewBuilder(cmp.Or(request.ID(r.Header), t.legID), api, request.Trace(r.Header, h.deps.Sample), t.began)
	return t
}

// guarded runs a turn within the limits of the server. It turns a panic into an error, so that a defect costs one turn only, and the
// turn's ticket is settled as after any other failure.
func (h *Handler) guarded(w http.ResponseWriter, r *http.Request, t *turn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.cfg.Logger.Error("panic in a turn", "turn", t.record.ID(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if err = fmt.Errorf("panic: %v", p); t.committed() {
				err = &record.AbortError{Err: err}
			}
		}
	}()
	defer t.lease.GiveBack()
	defer t.share.GiveBack()
	defer func() { t.proof.IDs.Discard() }() // which the last attempt has kept for a hand-back that will not happen
	if err := h.take(w, r, t); err != nil {
		return err
	}
	t.out = newCommitWriter(w, h.cfg.ClientWriteTimeout, h.deps.Errors, t.API, &t.record, t.began)
	if every := h.cfg.Heartbeat; t.Stream && every > 0 {
		t.out.beat(every)
	}
	return h.run(r.Context(), t) // which ends when the client leaves, and when the server abandons its turns (Run of package server)
}

// take reads a request into its turn, and gets the turn a slot. It needs neither an engine nor the store.
func (h *Handler) take(w http.ResponseWriter, r *http.Request, t *turn) error {
	client, requests := h.deps.Names.Address(r), h.deps.Requests
	t.record.From(client, "")
	tenant, err := requests.Tenant(r)
	if err != nil {
		return err
	}
	t.record.From(client, h.deps.Names.Tenant(tenant))
	t.share = requests.Reserve(r, tenant)
	var waited time.Duration
	raw, err := requests.Receive(w, r, &t.share, func() (err error) {
		t.lease, waited, err = h.deps.Slots.Take(r.Context(), t.share.Account)
		t.record.Waited(waited, err == nil)
		return err
	})
	if err != nil {
		return err
	}
	t.Request, t.body, err = requests.Understand(r, t.API, tenant, raw, &t.share)
	if err != nil {
		var wrong *request.Error
		if errors.As(err, &wrong) && wrong.Cause != nil {
			h.cfg.Logger.Warn("request names a prefill instance that is not permitted", "turn", t.record.ID(), "error", wrong.Cause)
		}
		return err
	}
	t.admitted = h.deps.Tickets.Admit(&t.Request, t.body, t.began)
	t.record.Asks(t.Model, t.Conversation.Name, t.Conversation.Source, t.Conversation.ID)
	t.record.Reuses(t.admitted.Nothing(&t.found))
	t.retries = retries{
		fleet: h.deps.Fleet, budget: h.budget, request: &t.Request, policy: t.routing.PrefillFailure, until: t.began.Add(h.cfg.begins(t.Stream) / 2),
	}
	t.retries.earlier.Queued = waited
	return nil
}

// maxFinish bounds a finish_reason, which is text from an engine. Those of vLLM have at most fourteen bytes.
const maxFinish = 64

// end sends the error of a turn that failed before it was committed, and passes the record of every turn to the observers.
func (h *Handler) end(w http.ResponseWriter, t *turn, err error) {
	var problem *apierror.Error
	if err != nil {
		problem = h.deps.Errors.Map(err)
	}
	switch {
	case err == nil:
	case t.committed():
		t.record.Broke(err, problem.Code)
	case t.out != nil && t.out.stop():
		t.out.lastWords(err, 0)
		t.record.Broke(err, problem.Code)
		err = &record.AbortError{Err: err}
	default:
		if t.record.Refused(w.Header(), problem.Status, problem.Code); problem.Status != record.StatusClientGone {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.cfg.ClientWriteTimeout))
			problem.Write(w, t.API)
		}
	}
	r := t.record.End(err)
	if r.Path.Way == record.WayDecodeOnly && r.End.Status == http.StatusOK {
		h.deps.Ratios.Learn(&t.Request, r.Answer.PromptTokens) // on the other ways prefill's answer has given the number
	}
	r.Unserved = r.Model != "" && !h.deps.Fleet.Catalogue.Serves(r.Model)
	finish := r.Answer.Finish
	if len(finish) > maxFinish {
		finish = strings.ToValidUTF8(finish[:maxFinish], "")
	}
	r.Answer.Finish = strings.Clone(finish) // it is a part of the whole answer, which observers would keep in memory
	for _, observe := range h.deps.Observers {
		observe(r)
	}
	if r.Aborted() || r.End.Status == record.StatusClientGone {
		// A plain return would end the chunked body cleanly, and the client would take a truncated answer for a complete one. A client
		// that has only closed its sending side would get an empty 200.
		panic(http.ErrAbortHandler)
	}
}
