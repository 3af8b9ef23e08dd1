package e2e

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// interposed lets a test act on the legs of a turn. It also gives legs to silent instances less time.
type interposed struct {
	upstream.Legs
	ahead  atomic.Pointer[func()]                    // acts once before the next leg is sent, when the turn has read which start is alive
	once   atomic.Pointer[func(ctx context.Context)] // acts once between the legs: after prefill has answered, before the server knows
	silent sync.Map                                  // base URLs of instances that answer no leg
}

// atLeg has something happen before the next leg is sent, and before another that is sent at the same time.
func (e *interposed) atLeg(act func()) {
	act = sync.OnceFunc(act)
	e.ahead.Store(&act)
}

// gather holds legs back until so many are about to be sent, each by a turn of its own.
func (e *interposed) gather(legs int) {
	var arrived sync.WaitGroup
	arrived.Add(legs)
	left := atomic.Int32{}
	left.Store(int32(legs))
	act := func() {
		if left.Add(-1) >= 0 {
			arrived.Done()
		}
		arrived.Wait()
	}
	e.ahead.Store(&act)
}

func (e *interposed) acts() {
	if act := e.ahead.Load(); act != nil {
		(*act)()
	}
}

// silence is the time limit of a leg to an instance that answers none. The outcome of such a leg does not depend on the limit. A setting of
// the program would also bound the legs that an instance answers, and those take seconds on a busy machine.
const silence = 300 * time.Millisecond

// setFault sets a fault of an instance.
func (r *rig) setFault(t *testing.T, instance *vllmsim.Instance, fault vllmsim.Fault) {
	t.Helper()
	noError(t, instance.SetFault(fault))
	if fault.Kind == vllmsim.FaultSilent {
		r.between.silent.Store(instance.URL(), true)
	}
}

// clearFaults ends the faults of an instance.
func (r *rig) clearFaults(t *testing.T, instance *vllmsim.Instance) {
	t.Helper()
	r.between.silent.Delete(instance.URL())
	noError(t, instance.ClearFaults())
}

// answersNone reports whether an instance has the fault that it answers no leg.
func (e *interposed) answersNone(instance *upstream.Instance) bool {
	_, is := e.silent.Load(instance.BaseURL)
	return is
}

// Decode implements upstream.Legs.
func (e *interposed) Decode(ctx context.Context, leg upstream.Leg, limits upstream.Limits) (*upstream.Stream, error) {
	e.acts()
	if e.answersNone(leg.Instance) {
		limits.FirstByte = silence
	}
	return e.Legs.Decode(ctx, leg, limits)
}

// Prefill implements upstream.Legs.
func (e *interposed) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	e.acts()
	if e.answersNone(leg.Instance) {
		limited, cancel := context.WithTimeoutCause(ctx, silence, upstream.ErrPrefillTimeout)
		defer cancel()
		ctx = limited
	}
	answer, err := e.Legs.Prefill(ctx, leg)
	if leg.Instance.Role != upstream.RolePrefill { // a rescue
		return answer, err
	}
	if act := e.once.Swap(nil); act != nil {
		(*act)(ctx)
	}
	return answer, err
}
