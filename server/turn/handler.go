package turn

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"carryover/server/admission"
	"carryover/server/apierror"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Handler answers the requests of turns. It sends the errors of turns that fail before they are committed, and has observers told of
// every turn.
type Handler struct {
	turns     *runner
	intake    *intake
	routing   atomic.Pointer[RoutingConfig] // of turns that begin from now on
	errors    *apierror.Mapper
	observers []record.Observer
	sample    record.Sample // decides which turns have spans; nil if turns are not traced
}

// HandlerDeps is what a handler of turns works with, besides the runner. All fields but Sample are required.
type HandlerDeps struct {
	Requests  *request.Reader
	Slots     *admission.Slots
	Names     request.ClientNames
	Errors    *apierror.Mapper
	Observers []record.Observer
	Sample    record.Sample // decides which turns have spans; nil if turns are not traced
}

// New returns a handler of turns.
func New(cfg Config, deps Deps, outer HandlerDeps) *Handler {
	return &Handler{
		turns: newRunner(cfg, deps), errors: outer.Errors, observers: outer.Observers, sample: outer.Sample,
		intake: &intake{requests: outer.Requests, prover: deps.Tickets.Prover, names: outer.Names, logger: cfg.Logger, slots: outer.Slots},
	}
}

// SetRouting changes the routing of turns that begin from now on.
func (h *Handler) SetRouting(cfg RoutingConfig) { h.routing.Store(&cfg) }

// Routing returns the routing of turns that begin now.
func (h *Handler) Routing() *RoutingConfig { return h.routing.Load() }

// Held returns how many bytes of requests are held, and for how many clients.
func (h *Handler) Held() (bytes int64, clients int) { return h.intake.requests.Held() }

// Serve runs the turn of a request to an API. It panics with http.ErrAbortHandler where the connection must be aborted.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, api body.API) {
	t := h.begin(api, r.Header)
	h.ended(w, t, h.guarded(w, r, t))
}

// begin makes the turn of a request, with an empty record.
func (h *Handler) begin(api body.API, header http.Header) *turn {
	t := &turn{Request: request.Request{API: api}, routing: h.routing.Load(), legID: upstream.NewID()}
	t.record = record.NewBuilder(cmp.Or(request.ID(header), t.legID), api, request.Trace(header, h.sample))
	return t
}

// ended sends the error of a turn that failed before it was committed, and accounts for every turn.
func (h *Handler) ended(w http.ResponseWriter, t *turn, err error) {
	switch {
	case err == nil:
	case t.committed():
		t.record.Broke(err, h.errors.Map(err).Code)
	case t.out != nil && t.out.heart.stop():
		t.out.lastWords(err, 0)
		t.record.Broke(err, h.errors.Map(err).Code)
		err = &record.AbortError{Err: err}
	default:
		h.refuse(w, t, h.errors.Map(err))
	}
	if r := h.account(t, err); r.Aborted() || r.End.Status == record.StatusClientGone {
		// A plain return would end the chunked body cleanly, and the client would take a truncated answer for a complete one. A client
		// that has only closed its sending side would get an empty 200.
		panic(http.ErrAbortHandler)
	}
}

// guarded runs a turn within the limits of the server. It turns a panic into an error, so that a defect costs one turn only, and the
// turn's ticket is settled as after any other failure.
func (h *Handler) guarded(w http.ResponseWriter, r *http.Request, t *turn) (err error) {
	defer h.recovered(t, &err)
	defer t.lease.GiveBack()
	defer t.share.GiveBack()
	defer t.proving.Discard()
	if err := h.intake.take(w, r, t); err != nil {
		return err
	}
	// The context ends when the client leaves, and when the server abandons its turns (Run of package server).
	ctx := r.Context()
	t.out = newCommitWriter(w, h.turns.cfg.ClientWriteTimeout, h.errors, t.API, &t.record)
	if every := h.turns.cfg.Heartbeat; t.Stream && every > 0 {
		t.out.beat(every)
	}
	return h.turns.run(ctx, t)
}

// recovered turns a panic into an error. It must be deferred.
func (h *Handler) recovered(t *turn, err *error) {
	p := recover()
	if p == nil {
		return
	}
	h.turns.cfg.Logger.Error("panic in a turn", "turn", t.record.ID(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	*err = fmt.Errorf("panic: %v", p)
	if t.committed() {
		*err = &record.AbortError{Err: *err}
	}
}

// refuse answers a turn with an error. Nothing may have been sent to the client before.
func (h *Handler) refuse(w http.ResponseWriter, t *turn, e *apierror.Error) {
	t.record.Refused(w.Header(), e.Status, e.Code)
	if e.Status == record.StatusClientGone {
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.turns.cfg.ClientWriteTimeout))
	e.Write(w, t.API)
}

// account learns from a turn that has ended, passes its record to the observers, and returns the record.
func (h *Handler) account(t *turn, err error) *record.Turn {
	r := t.record.End(err)
	if r.Path.Way == record.WayDecodeOnly && r.End.Status == http.StatusOK {
		h.turns.legs.deps.Ratios.Learn(&t.Request, r.Answer.PromptTokens) // on the other ways prefill's answer has given the number
	}
	r.Unserved = r.Model != "" && !h.turns.deps.Fleet.Catalogue.Serves(r.Model)
	r.Answer.Finish = clip(r.Answer.Finish)
	for _, observe := range h.observers {
		observe(r)
	}
	return r
}

// maxFinish bounds a finish_reason, which is text from an engine. Those of vLLM have at most fourteen bytes.
const maxFinish = 64

// clip returns a copy. The text that it is given is part of the whole answer, which observers would otherwise keep in memory.
func clip(finish string) string {
	if len(finish) > maxFinish {
		finish = strings.ToValidUTF8(finish[:maxFinish], "")
	}
	return strings.Clone(finish)
}

// counts holds what turns count.
type counts struct {
	stranded atomic.Uint64 // hand-overs that decode has not taken, and that no rescue has freed
}

// Stranded returns how many hand-overs nobody has taken.
func (h *Handler) Stranded() uint64 { return h.turns.legs.counts.stranded.Load() }

// Retries returns the budget for what is tried again.
func (h *Handler) Retries() *RetryBudget { return h.turns.retries.budget }
