package turn

import (
	"context"
	"time"

	"carryover/server/admission"
	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/sse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// turn is one client request and its answer. Only the turn's own goroutine uses it.
type turn struct {
	request.Request
	body    *body.Request  // nil once the answer has begun
	routing *RoutingConfig // as it was when the turn began
	legID   string         // X-Request-Id of the legs; a retry gets a new one
	proving reuse.Proving
	lookup  reuse.Lookup // what the store has of the conversation
	chain   []uint64     // hashes of the prompt's beginning, for the choice of prefill
	retry   retryState
	share   request.Reservation // the turn's part of the bytes in flight
	lease   admission.Lease     // the turn's slot of the server
	out     *commitWriter       // writes the answer, nil until the legs begin
	record  record.Builder
}

// committed reports whether the answer's beginning has reached the client, so that the turn can't be tried again.
func (t *turn) committed() bool { return t.out != nil && t.out.committed }

// runner runs turns. One value serves all of them.
type runner struct {
	cfg        Config
	deps       Deps
	retries    *retryPolicy
	legs       *legRunner
	hopeless   *hopeless
	background func(what, id string, work func()) // runs work that no turn waits for
	streamed   sse.Memory                         // the memory of relays
}

// run runs a turn to its end, with as many attempts as it takes. It returns nil when the client has its answer, an *AbortError when the
// answer broke off and the connection must be aborted, and any other error when the client has been sent nothing.
func (s *runner) run(ctx context.Context, t *turn) error {
	s.retries.budget.earn(t.Account)
	t.retry.until = t.record.Times().Began.Add(s.cfg.begins(t.Stream) / 2)
	defer t.retry.doubts.settle()
	for {
		err := s.try(ctx, t)
		switch {
		case err == nil:
			return nil
		case t.committed():
			return &record.AbortError{Err: err}
		case s.isHopeless(t, err, false):
			return err
		case !s.again(ctx, t, err):
			s.isHopeless(t, err, true)
			return err
		}
	}
}

// again reports whether a turn makes another attempt after one that failed with err, and prepares it. It is a function of its own for the
// same reason as ask.
func (s *runner) again(ctx context.Context, t *turn, err error) bool {
	switch s.retries.decide(ctx, &t.retry, t.retryContext(), err) {
	case giveUp:
		return false
	case restart:
		t.legID = upstream.NewID()
	}
	t.record.Retried()
	t.retry.retries++
	s.cfg.Logger.Info("trying again", "turn", t.record.ID(), "error", err)
	return true
}

// retryContext is what is known of the turn when an attempt has failed.
func (t *turn) retryContext() *retryContext {
	return &retryContext{
		account: t.Account, model: t.Model, prefiller: t.Prefiller, afterPrefill: t.routing.PrefillFailure,
		most:    2 * t.Length.Whole.Tokens(1), // a token has a byte, and templates add some
		retries: t.retry.retries, missed: t.record.Reuse().Reason,
	}
}

// try makes one attempt: it asks the engines for an answer, and relays that.
func (s *runner) try(ctx context.Context, t *turn) error {
	pair, answer, err := s.ask(ctx, t)
	if err != nil {
		return err
	}
	defer pair.Done()
	defer answer.Close()

	return s.respond(ctx, t, answer) // commit, relay, store the ticket, end
}

// ask is the first half of an attempt: look the conversation up, pick engines, find and claim a ticket, run the legs until decode's headers
// have arrived.
func (s *runner) ask(ctx context.Context, t *turn) (_ *pick.Pair, answer *decoding, _ error) {
	began, queued, lookup := time.Now(), t.record.Times().Queued, t.record.Step(record.StepLookup)
	t.retry.last = attempted{}
	t.proving.Without = t.retry.withoutTicket
	t.lookup = s.deps.Tickets.Finder.Look(ctx, &t.proving, t.lookup) // which tickets the conversation has, and on which engines
	if t.chain == nil {
		t.chain = s.deps.Picker.PromptChain(t.body)
	}
	asked := t.pickInput()
	pair, earlier, err := s.deps.Picker.Pick(ctx, asked) // which incarnations of which engines serve, and by which path
	t.retry.earlier, asked.Earlier = earlier, earlier
	if err != nil {
		lookup.Ended(false)
		return nil, nil, err
	}
	defer func() {
		if answer == nil { // the attempt has failed, or panics
			pair.Done()
		}
	}()

	t.proving.Begin(ctx, reuse.Incarnations{Prefill: pair.Prefill, Decode: pair.Decode, Quarantined: pair.Quarantined}, s.background)
	claimed := s.deps.Tickets.Finder.Find(ctx, &t.proving, &t.lookup) // the ticket to use; a miss is a claim without one
	t.record.LookedUp(began, queued)
	lookup.Ended(true)
	a := &attempt{
		legRunner: s.legs, Attempt: asked, legID: t.legID, pair: pair, proving: &t.proving, claim: claimed, tried: &t.retry.last,
		withoutRelease: t.retry.withoutRelease, doubts: &t.retry.doubts,
	}
	d, err := a.run(ctx) // prefill and decode in the connector's order; every exit settles the claim
	if err != nil {
		return nil, nil, err
	}
	t.retry.doubts.without(upstream.RoleDecode)
	t.retry.doubts.settle() // an engine has served what others have failed
	s.accepted(t, pair.Decode)
	return pair, d, nil
}

// accepted has the tenant of a turn, whose credential decode has accepted, count for itself from its next turn on.
func (s *runner) accepted(t *turn, decode *fleet.Incarnation) {
	if t.Authorization == "" || s.deps.Accepted.Has(t.Conversation.Tenant) {
		return
	}
	account, tenant := t.Account, t.Conversation.Tenant
	s.background("account", t.record.ID(), func() {
		if decode.Keys.Checked(s.deps.Background.Context()) {
			s.deps.Accepted.Add(account, tenant)
		}
	})
}

// pickInput is what the picker needs to know of the turn.
func (t *turn) pickInput() pick.Attempt {
	return pick.Attempt{
		Request: &t.Request, Body: t.body, Chain: t.chain, Holds: t.lookup.Holdings(), Owned: t.lookup.Owned(), PrefixHints: t.lookup.PrefixHints(),
		Tickets: t.proving.TakesPart(), Routing: t.routing.Picks(), Record: &t.record, Earlier: t.retry.earlier,
	}
}
