package turn

import (
	"context"
	"errors"
	"time"

	"carryover/upstream"
)

// Limits of waiting for KV after its client has left.
const (
	// lateKV is how long a wait may last. KV that arrives and is never read stays in its receiver's buffer for ever, until the buffer is
	// full (LMCache 0.5.6, measured). KV that has not come within a minute is never announced, such as that of a prompt beyond prefill's
	// batch.
	lateKV = time.Minute
	// mostLate is how many such waits may go on after the hand-over budget has ended. Each keeps its turn's request in memory.
	mostLate = 256
)

// arrived waits for KV after the client has left, because decode must not look for it before it has arrived. It first waits for as long as
// a client would wait, even if the program ends meanwhile. Then it waits for another minute, or until the program ends.
func (r *legRunner) arrived(ctx context.Context, plan upstream.Plan, h handed) error {
	if plan.Order != upstream.AfterReady {
		return nil
	}
	wait := plan.Arrived
	if wait == nil {
		wait = plan.Ready
	}
	ending := r.deps.Background.Context().Err() != nil
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
	select {
	case r.late <- struct{}{}:
		defer func() { <-r.late }()
	default:
		return upstream.ErrNotReady
	}
	bounded, cancel := context.WithTimeoutCause(r.deps.Background.Context(), lateKV, upstream.ErrNotReady)
	defer cancel()
	return wait(bounded)
}

// takeLate has decode read KV that the client's leg does not read: the KV had not arrived when the hand-over budget ended, prefill's leg was
// abandoned while it was sent, or decode has failed the client's leg. It reports whether it will close the plan.
func (a *attempt) takeLate(ctx context.Context, plan upstream.Plan, h handed) bool {
	return plan.Late != nil && a.drainHandover(ctx, plan, h)
}

// unannounced reports whether the KV is still on its way, so that the client's leg will not find it.
func unannounced(plan upstream.Plan) bool {
	if plan.Order != upstream.AfterReady || plan.Arrived == nil {
		return false
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	return plan.Arrived(over) != nil
}

// mayArrive reports whether an engine may have begun to send KV although its leg failed with this error: the leg was sent, and the engine has
// not refused it.
func mayArrive(err error) bool {
	var leg *upstream.LegError
	return errors.As(err, &leg) && leg.Sent && (leg.Kind == upstream.Gone || leg.Kind == upstream.Timeout || leg.Kind == upstream.Broken)
}

// failedSent reports whether a failed leg may have reached decode, whose receiver may then hold the KV that the leg would have read.
func failedSent(err error) bool {
	var leg *upstream.LegError
	return errors.As(err, &leg) && leg.Sent
}

// sending returns the leg for the call that sends it, and removes the body from the original, so that the body can be freed as soon as it
// is written.
func sending(leg *upstream.Leg) upstream.Leg {
	sent := *leg
	leg.Body = nil
	return sent
}
