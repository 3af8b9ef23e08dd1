package server

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/outline"
	"carryover/server/proof"
	"carryover/sse"
	"carryover/upstream/fleet"
)

// turn is one client request and its answer. It belongs to one goroutine.
type turn struct {
	request
	routing      *RoutingConfig // as it was when the turn began
	legID        string         // X-Request-Id of the legs; a retry gets a new one
	salt         string         // cache_salt of the tenant for all legs, "" leaves the client's
	clientSalt   string         // the client's, where the answer may be handed back
	conversation conversation
	proving
	branches  []convcache.Branch // what decode holds of the conversation, as the last look saw it
	notes     []convcache.Branch // what of it was handed back to prefill
	holds     []fleet.Holding    // the same as policies are told, remade for each pick
	dropped   Reason             // why what it held besides is given up, "" for nothing
	chain     []uint64           // the beginning of the prompt, for the choice of prefill
	outline   *outline.Outline   // its history without the content, nil where no ticket is used or left
	retry     retryState
	share     reservation // its part of the bytes in flight
	placed    bool        // it has one of the server's places
	committed bool        // status and headers have reached the client
	record    Record
}

// proving is what shows how much of a ticket a turn may use, and whether it may leave one.
type proving struct {
	proof      proof.Turn   // nil where nothing may be reused or kept
	ineligible string       // why that is so, where it is for the request's own sake
	way        string       // the proof's name
	arena      *proof.Arena // for the ids of the answer, so that it can be handed back; nil where it is not to be
	ids        *proof.IDs   // of the attempt, nil where its legs compute none that were compared
	lacks      string       // what the attempt lacks for a proof, "" for nothing
}

// turns runs turns.
type turns struct {
	cfg     *Config
	deps    *Deps
	finder  *finder
	picker  *picker
	tickets *ticketMaker

	handBacks  *handBacks
	releaser   *releaser
	lineages   *lineages
	background *background
	budget     *retryBudget
	ratios     *ratios
	counts     *counts
	streamed   sse.Memory // of relays
	late       lateWaits

	unseat func(client string) // gives a place of the server back
}

// run runs a turn to its end: the answer is with the client, or an error is returned and
// nothing was sent, or the connection has to be aborted because the answer broke off
// (*abortError).
func (s *turns) run(ctx context.Context, out *commitWriter, t *turn) error {
	s.budget.earn(t.share.client)
	for {
		err := s.attempt(ctx, out, t)
		if err != nil && t.committed {
			return &abortError{err}
		}
		if err == nil || !s.again(ctx, t, err) {
			return err
		}
		s.retry(ctx, t, err)
	}
}

// retry gets a turn ready for its next attempt.
func (s *turns) retry(ctx context.Context, t *turn, err error) {
	t.record.Retries++
	s.cfg.Logger.Info("trying again", "turn", t.record.Turn, "error", err)
	s.reread(ctx, t, err)
}

// attempt is one passage through the legs of a turn.
func (s *turns) attempt(ctx context.Context, out *commitWriter, t *turn) error {
	pair, answer, err := s.ask(ctx, out, t)
	if err != nil {
		return err
	}
	defer pair.done()
	defer answer.Close()

	return s.respond(ctx, out, t, answer) // commit, relay, put, end
}

// ask is an attempt up to decode's headers. Its frame is gone when the answer is relayed, for which see handleTurn.
func (s *turns) ask(ctx context.Context, out *commitWriter, t *turn) (_ *pair, answer *decoding, _ error) {
	began, queued, lookup := time.Now(), t.record.Queued, t.record.step(StepLookup)
	looked := s.finder.look(ctx, t)    // what the conversation holds, and where
	pair, err := s.picker.pick(ctx, t) // which engines, in which start, and which path
	if err != nil {
		lookup.ended(false)
		return nil, nil, err
	}
	defer func() {
		if answer == nil { // failed, or panics
			pair.done()
		}
	}()
	t.retry.prefill = pair.prefill

	claimed := s.finder.find(ctx, t, pair, looked) // a miss is a value, not an error
	t.record.Lookup = time.Since(began) - (t.record.Queued - queued)
	lookup.ended(true)
	d, err := s.legs(ctx, out, t, pair, claimed) // in the connector's order; every exit says what became of the ticket
	if err != nil {
		return nil, nil, err
	}
	return pair, d, nil
}

// abortError says that the answer broke off after the client had seen part of it:
// the connection must end abnormally, or the client would take what it has for
// complete.
type abortError struct{ err error }

// Error says what broke the answer.
func (e *abortError) Error() string { return "answer broke off: " + e.err.Error() }

// Unwrap returns what broke the answer.
func (e *abortError) Unwrap() error { return e.err }
