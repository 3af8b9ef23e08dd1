package server

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// SpendRetries leaves nothing in the retry budget, and lets nothing come in for an hour.
func (s *Server) SpendRetries() { s.turns.Retries.Earn("", -36_200) }

// CompareQuarantines is one round of what runs beside the turns.
func (s *Server) CompareQuarantines(ctx context.Context) { s.quarantines.Compare(ctx) }

// Remind is one round of what repeats in the log that an instance is quarantined.
func (s *Server) Remind(ctx context.Context) { s.quarantines.Remind(ctx) }

// Inflight is the memory that request bodies take, and how many clients it is booked on.
func (s *Server) Inflight() (bytes int64, clients int) {
	return s.requests.Held()
}

// ReleaseOne releases one ticket by a leg of our own.
func (s *Server) ReleaseOne(ctx context.Context, decode *fleet.Engine) bool {
	return s.Pins.ReleaseOne(ctx, decode)
}

// Handler serves the main listener's endpoints.
func (s *Server) Handler() http.Handler { return s.handler }

// MakeRoom is one round of what keeps tickets from pinning more than their share.
func (s *Server) MakeRoom(ctx context.Context) { s.round(ctx, "pinned budget") }

// TakeLate is one round of what releases given-up tickets.
func (s *Server) TakeLate(ctx context.Context) { s.round(ctx, "release") }

func (s *Server) round(ctx context.Context, of string) {
	s.Pins.Begin(func(task string, _ time.Duration, _ <-chan struct{}, round func(context.Context)) {
		if task == of {
			round(ctx)
		}
	})
}

// PassOn is what a leg carries of a client's trace context where turns are not traced.
func PassOn(header http.Header) (traceparent, tracestate string) {
	client := request.Trace(header, nil).Context
	if !client.IsValid() {
		return "", ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), client), carrier)
	return carrier["traceparent"], carrier["tracestate"]
}

// HandBack hands back, one after the other, what is due after so long, and returns how many tickets were begun with. It ends with the
// first that has to wait again.
func (s *Server) HandBack(ctx context.Context, after time.Duration) (n int) {
	for {
		before := s.Pins.Counts().HandBacks
		begun := s.Pins.HandBacks(ctx, time.Now().Add(after))
		s.background.Wait()
		n += begun
		if now := s.Pins.Counts().HandBacks; now.Done+now.Failed == before.Done+before.Failed {
			return n
		}
	}
}

// Learn has the learner know answers of the tenant without a name, which were continued after so long, 0 for never.
func (s *Server) Learn(answers int, kind continuation.Kind, continued time.Duration) {
	at, learner := time.Now().Add(-20*time.Minute), s.Pins.Continuations
	for i := range answers {
		key := convcache.Key{byte(i), 1}
		learner.Answered("", "", kind, key, body.Beginning{}, at)
		if continued > 0 {
			learner.Asked(continuation.Turn{Key: key, Explicit: true}, at.Add(continued))
		}
	}
	learner.Curve("", kind, at.Add(10*time.Minute))
}

// Curve returns what is known of answers of the tenant without a name.
func (s *Server) Curve(kind continuation.Kind) continuation.Curve {
	return s.Pins.Continuations.Curve("", kind, time.Now())
}

// Unused returns how many tickets wait for their release.
func (s *Server) Unused() (n int) {
	for _, e := range s.deps.Fleet.Engines(upstream.RoleDecode) {
		waiting, _, _ := s.Pins.Due(e)
		n += waiting
	}
	return n
}

// Caught puts a start of prefill under quarantine, as a wrong answer to a leg of now does, and tells no other replica.
func (s *Server) Caught(prefill *fleet.Incarnation) {
	s.quarantines.Caught(prefill, s.quarantines.Now(), "test")
}

// Sweep is one round of what runs beside the turns, with the tickets that it gives up.
func (s *Server) Sweep(ctx context.Context) {
	s.quarantines.Compare(ctx)
	s.background.Wait()
}
