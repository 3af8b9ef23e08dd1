package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"carryover/convcache"
	"carryover/upstream"
)

// turn is one client request and its answer. It belongs to one goroutine.
type turn struct {
	id            string // X-Request-Id towards the client
	legID         string // X-Request-Id of the legs; a retry gets a new one
	began         time.Time
	api           upstream.API
	req           *upstream.Request
	authorization string      // the client's credential, if it is to be forwarded
	salt          string      // cache_salt for both legs, "" leaves the client's
	share         reservation // the body's part of the bytes in flight
	rest          int64       // bytes that the end of the stream needs, hashes of prompt and branches

	model        string
	stream       bool // the client asked for a stream
	conversation conversation
	proof        Proof
	history      convcache.History // valid only if ineligible is ""
	shape        string            // for which parity is learnt, "" if not comparable
	ineligible   string            // why this request takes no part in reuse

	// What the attempts have come to; see retry.go.
	failed         *upstream.LegError
	tried          []upstream.Role // legs that were sent, failed, and tried again
	excluded       map[upstream.Role][]string
	withoutTicket  Reason             // why a further attempt must not use a ticket
	sentTicket     bool               // the last prefill leg carried one
	sentRelease    bool               // the last prefill leg carried an unused one
	withoutRelease bool               // a further attempt must not carry one
	branches       []convcache.Branch // what the look-up saw
	tokens         tokens

	committed bool // status and headers have reached the client
	receipt   receipt
}

// runTurn runs a turn to its end: the answer is with the client, or an error is
// returned and nothing was sent, or the connection has to be aborted because the
// answer broke off (*abortError).
func (s *Server) runTurn(ctx context.Context, w http.ResponseWriter, t *turn) error {
	s.budget.earn()
	for {
		err := s.attempt(ctx, w, t)
		if err == nil || !s.again(ctx, t, err) {
			return err
		}
		t.receipt.retries++
		s.cfg.Logger.Info("trying again", "turn", t.id, "error", err)
	}
}

// attempt is one passage through the legs of a turn.
func (s *Server) attempt(ctx context.Context, w http.ResponseWriter, t *turn) error {
	pair, err := s.pick(t) // which instances, which path
	if err != nil {
		return err
	}
	defer pair.release()

	held := s.find(ctx, t, pair)                   // a miss is a value, not an error
	handover, err := s.prefill(ctx, t, pair, held) // every exit says what became of the ticket
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		s.strand(ctx, t, pair, handover)
		return context.Cause(ctx)
	}

	answer, err := s.decode(ctx, t, pair, handover)
	if err != nil {
		return err
	}
	defer answer.Close()

	return s.respond(ctx, w, t, answer) // commit, relay, put, end
}

// abortError says that the answer broke off after the client had seen part of it:
// the connection must end abnormally, or the client would take what it has for
// complete.
type abortError struct{ err error }

// Error says what broke the answer.
func (e *abortError) Error() string { return "answer broke off: " + e.err.Error() }

// Unwrap returns what broke the answer.
func (e *abortError) Unwrap() error { return e.err }

func isAbort(err error) bool {
	var abort *abortError
	return errors.As(err, &abort)
}
