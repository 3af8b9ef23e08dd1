package server

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"carryover/server/queue"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// turnSlots returns the limits of the queue in which turns wait to begin.
func (c *QueueConfig) turnSlots() queue.Config {
	return queue.Config{MaxWaiting: c.MaxQueue, Timeout: c.QueueTimeout, MaxPerTenant: c.MaxPerTenant}
}

// engineSlots returns the limits of the queue in which turns wait for an instance. These turns have a slot of the server, so that the
// limit per tenant is observed already.
func (c *QueueConfig) engineSlots() queue.Config {
	return queue.Config{MaxWaiting: c.MaxQueue, Timeout: c.QueueTimeout}
}

// SetQueue changes the limits of both queues while the server runs.
func (s *Server) SetQueue(cfg QueueConfig) {
	s.turnSlots.Configure(cfg.turnSlots())
	s.engineSlots.Configure(cfg.engineSlots())
}

// Waiting returns how many turns wait to begin, and how many wait for an instance.
func (s *Server) Waiting() (toBegin, forInstance int) {
	return s.turnSlots.Waiting(), s.engineSlots.Waiting()
}

// Open returns how many turns have a slot now.
func (s *Server) Open() int { return len(s.streams) }

// awaitSlot gets the turn a slot of the server, and waits for one if all are taken.
func (s *Server) awaitSlot(ctx context.Context, t *turn) error {
	waited, err := s.seat(ctx, t.share.Client)
	t.record.Waited(waited, err == nil)
	t.placed = err == nil
	return err
}

// seat gets a client a slot of the server, and waits for one if all are taken. Every request to engines on behalf of a client needs a slot.
func (s *Server) seat(ctx context.Context, client string) (waited time.Duration, err error) {
	return s.turnSlots.Wait(ctx, queue.Claim{Tenant: client}, 0, func() bool {
		select {
		case s.streams <- struct{}{}:
			return true
		default:
			return false
		}
	})
}

// unseat gives a slot back.
func (s *Server) unseat(client string) {
	s.turnSlots.Leave(queue.Claim{Tenant: client})
	<-s.streams
	s.turnSlots.Freed()
}

// leave gives the turn's slot back, if it has one.
func (s *Server) leave(t *turn) {
	if t.placed {
		t.placed = false
		s.unseat(t.share.Client)
	}
}

// slot is a turn's slot on an instance. The zero value is no slot.
type slot struct {
	of    *queue.Queue // the queue to tell when the slot is free, nil if no turn can wait for it
	claim queue.Claim
	free  func() // gives the instance back
	left  atomic.Bool
}

// leave gives the slot back, once. It is safe for concurrent use.
func (r *slot) leave() {
	if r.taken() {
		giveBack(r.of, r.claim, r.free)
	}
}

// taken marks the slot as given back, and reports whether it was held until then.
func (r *slot) taken() bool { return r.free != nil && !r.left.Swap(true) }

func giveBack(of *queue.Queue, claim queue.Claim, free func()) {
	if of != nil {
		of.Leave(claim)
	}
	free() // the fleet then tells the queue (OnFreed)
}

// detach lets the slot outlive its pair: only the returned function gives it back. If no slot is held, that function does nothing.
func (r *slot) detach() (leave func()) {
	if !r.taken() {
		return func() {}
	}
	of, claim, free := r.of, r.claim, r.free
	return func() { giveBack(of, claim, free) }
}

// awaitSlot picks an engine as [fleet.Fleet.Pick] does, and waits while all engines that could be picked are full. It stores the turn's
// slot on the engine in in.
func (k *picker) awaitSlot(
	ctx context.Context, t *turn, role upstream.Role, hint fleet.Hint, exclude func(*fleet.Engine) bool, in *slot,
) (engine *fleet.Engine, err error) {
	if k.dryRun {
		return k.deps.Fleet.Predict(role, hint, exclude)
	}
	claim := queue.Claim{Tenant: t.share.Client, Class: t.slotClass(role, hint)}
	var free func()
	waited, full := k.engineSlots.Wait(ctx, claim, t.record.Times().Queued, func() bool {
		engine, free, err = k.deps.Fleet.Pick(role, hint, exclude)
		return !errors.Is(err, upstream.ErrBusy) // waiting helps against nothing else
	})
	t.record.Waited(waited, full == nil)
	switch {
	case full != nil:
		return nil, full
	case err != nil:
		k.engineSlots.Leave(claim)
		return nil, err
	}
	in.of, in.claim, in.free = k.engineSlots, claim, free
	return engine, nil
}

// longestModel is longer than any model name that an engine may list (maxModelID of package fleet).
const longestModel = 1 << 10

// slotClass names a turn's class in the queue. Turns of one class could be given the same instances.
func (t *turn) slotClass(role upstream.Role, hint fleet.Hint) string {
	// The name is cut because no engine serves a longer one, and because the copy is not counted for any client.
	model := hint.Model[:min(len(hint.Model), longestModel)]
	class := role.String() + " " + model + " " + t.Prefiller
	if len(t.retry.excluded) == 0 {
		return class
	}
	var b strings.Builder
	b.WriteString(class)
	for _, e := range t.retry.excluded {
		b.WriteString(" -" + e.Name)
	}
	return b.String()
}
