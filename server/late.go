package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"carryover/upstream"
)

// Bounds of the wait for KV for which no client waits any more.
const (
	// lateKV is how long it may take. KV that comes when nobody takes it stays at its receiver for ever, whose room ends with it (LMCache
	// 0.5.6, measured); what has not come in a minute is not announced at all, as that of a prompt beyond prefill's batch.
	lateKV = time.Minute
	// mostLate is how many such waits there may be behind the hand-over budget. Each keeps the request of its turn.
	mostLate = 256
)

// lateWaits counts them.
type lateWaits struct{ n atomic.Int32 }

// begin counts a wait, and reports whether there may be one more. end ends it.
func (l *lateWaits) begin() bool {
	if l.n.Add(1) <= mostLate {
		return true
	}
	l.end()
	return false
}

func (l *lateWaits) end() { l.n.Add(-1) }

// arrived waits for KV that nobody waits for any more: decode must not look for it before it has arrived. That is for as long as a client
// would wait, even if the program ends meanwhile, and then until it ends, for a minute at most.
func (s *turns) arrived(ctx context.Context, plan upstream.Plan, h handed) error {
	if plan.Order != upstream.AfterReady {
		return nil
	}
	wait := plan.Arrived
	if wait == nil {
		wait = plan.Ready
	}
	ending := s.background.ctx.Err() != nil
	if left := time.Until(h.until); left > 0 || ending {
		if ending || left < detachedLimit {
			left = detachedLimit
		}
		bounded, cancel := context.WithTimeoutCause(ctx, left, upstream.ErrFirstByteTimeout)
		defer cancel()
		if err := wait(bounded); ending || !errors.Is(err, upstream.ErrFirstByteTimeout) {
			return err
		}
	}
	if !s.late.begin() {
		return upstream.ErrNotReady
	}
	defer s.late.end()
	bounded, cancel := context.WithTimeoutCause(s.background.ctx, lateKV, upstream.ErrNotReady)
	defer cancel()
	return wait(bounded)
}

// takeLate has decode take KV that the client's leg has not been sent for, or that it has left: it had not arrived when the hand-over budget
// was over, prefill's leg was given up while it was sent, or decode has failed the leg. It reports whether it will close the plan.
func (s *turns) takeLate(ctx context.Context, t *turn, p *pair, plan upstream.Plan, h handed) bool {
	return plan.Late != nil && s.drainHandover(ctx, t, p, plan, h)
}

// unannounced reports whether KV is on its way of which the client's leg is to find nothing, because it has not arrived in time.
func unannounced(plan upstream.Plan) bool {
	if plan.Order != upstream.AfterReady || plan.Arrived == nil {
		return false
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	return plan.Arrived(over) != nil
}

// mayArrive reports whether an engine whose leg has failed so may have begun to send KV: it was given up, and has not refused the leg.
func mayArrive(err error) bool {
	var leg *upstream.LegError
	if !errors.As(err, &leg) {
		return false
	}
	return leg.Sent && (leg.Kind == upstream.Gone || leg.Kind == upstream.Timeout || leg.Kind == upstream.Broken)
}

// failedSent reports whether decode has failed a leg that it may have got: it answers, and its receiver may hold what the leg was to read.
func failedSent(err error) bool {
	var leg *upstream.LegError
	return errors.As(err, &leg) && leg.Sent
}
