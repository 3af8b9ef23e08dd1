package turn

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"carryover/account"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/sse"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Handler runs the turns of requests. It sends the error of a turn that fails before it is committed, and tells observers of every turn.
type Handler struct {
	cfg  Config
	deps Deps

	Routing  atomic.Pointer[RoutingConfig] // of turns that begin from now on
	Retries  RetryBudget
	Stranded atomic.Uint64 // hand-overs that decode has not taken, and that no rescue has freed
	streamed sse.Memory    // the memory of relays
	rescues  atomic.Int64  // how many run

	mu       sync.Mutex                      // guards hopeless
	hopeless *account.Map[string, time.Time] // when bodies failed everywhere last, by their hashes
}

// New returns a handler of turns.
func New(cfg Config, deps Deps) *Handler {
	return &Handler{
		cfg: cfg, deps: deps, Retries: RetryBudget{taken: map[string]float64{}},
		hopeless: account.NewMap[string, time.Time](mostHopeless),
	}
}

// Serve runs the turn of a request to an API. It panics with http.ErrAbortHandler if the connection must be aborted.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, api body.API) {
	t := h.begin(w, r, api)
	h.end(t, h.guarded(r, t))
}

// begin makes the turn of a request. Like end it is a function of its own, so that its frame is not on the stack of open streams.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request, api body.API) *turn {
	t := &turn{
		Request: request.Request{API: api}, began: time.Now(), routing: h.Routing.Load(), legID: upstream.NewID(),
	}
	t.record = record.NewBuilder(cmp.Or(request.ID(r.Header), t.legID), request.Trace(r.Header, h.deps.Sample), t.began)
	// Server.exact has set the first deadline of the writes when the request came in.
	t.out = commitWriter{w: w, limit: h.cfg.ClientWriteTimeout, bounded: t.began, record: &t.record}
	return t
}

// guarded runs a turn within the limits of the server. It turns a panic into an error: a defect then costs one turn only, and the turn's ticket is
// settled as after any other failure.
func (h *Handler) guarded(r *http.Request, t *turn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			h.log(&t.record).Error("panic in a turn", "panic", err, "stack", string(debug.Stack()))
		}
	}()
	defer t.lease.GiveBack()
	defer t.share.GiveBack()
	defer func() { t.proof.IDs.Discard() }() // the last attempt has kept them for a hand-back that will not happen
	if err = h.take(r, t); err != nil {
		return err
	}
	if every := h.cfg.Heartbeat; t.Stream && every > 0 {
		t.out.beat(t.API, every)
	}
	return h.run(r.Context(), t) // the context ends when the client leaves, and when the server abandons its turns (Run of package server)
}

// take reads a request into its turn, and gets the turn a slot. It needs neither an engine nor the store.
func (h *Handler) take(r *http.Request, t *turn) error {
	names, requests := h.deps.Names, h.deps.Requests
	tenant, err := requests.Tenant(r)
	asked := record.Asked{API: t.API, Client: names.Address(r), Tenant: names.Tenant(tenant)}
	t.record.Asks(asked)
	if err != nil {
		return err
	}
	t.share = requests.Reserve(r, tenant)
	raw, err := requests.Receive(t.out.w, r, &t.share, func() (err error) {
		t.lease, t.asked.Queued, err = h.deps.Slots.Take(r.Context(), t.share.Account)
		t.record.Waited(t.asked.Queued)
		return err
	})
	if err != nil {
		return err
	}
	t.Request, t.asked.Body, err = requests.Understand(r, t.API, tenant, raw, &t.share)
	if err != nil {
		return err
	}
	t.admitted = h.deps.Tickets.Admit(&t.Request, t.asked.Body, t.began)
	asked.Model, asked.Conversation, asked.Source, asked.ID = t.Model, t.Conversation.Name, t.Conversation.Source, t.Conversation.ID
	t.record.Asks(asked)
	t.asked.Request, t.asked.Tickets = &t.Request, t.admitted.TakesPart()
	t.asked.Threshold, t.asked.PrefillError = t.routing.DisaggThreshold, t.routing.PrefillFailure == PrefillError
	return nil
}

// end sends the error of a turn that failed before it was committed, and passes the record of every turn to the observers.
func (h *Handler) end(t *turn, err error) {
	if err != nil {
		problem := h.deps.Errors.Map(err)
		if began := t.out.committed; began || t.out.stop() {
			if !began {
				t.out.end(problem.Event(t.API, 0))
			}
			t.record.Broke(fmt.Errorf("%w: %w", record.ErrAborted, err), problem.Code)
		} else if t.record.Refused(t.out.w.Header(), err, problem.Status, problem.Code); problem.Status != record.StatusClientGone {
			_ = t.out.bound()
			problem.Write(t.out.w, t.API)
		}
	}
	r := t.record.End()
	if r.Path.Way == record.WayDecodeOnly && r.Status == http.StatusOK {
		h.deps.Ratios.Learn(&t.Request, r.Answer.PromptTokens) // on the other ways prefill's answer has given the number
	}
	r.Unserved = r.Model != "" && !h.deps.Fleet.Catalogue.Serves(r.Model)
	for _, observe := range h.deps.Observers {
		observe(r)
	}
	if r.Aborted() || r.Status == record.StatusClientGone {
		// A plain return would end the chunked body cleanly, and the client would take a truncated answer for a complete one. A client
		// that has only closed its sending side would get an empty 200.
		panic(http.ErrAbortHandler)
	}
}
