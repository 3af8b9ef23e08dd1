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

// turnSlots bounds the waits of turns that are to begin.
func (c *QueueConfig) turnSlots() queue.Config {
	return queue.Config{MaxWaiting: c.MaxQueue, Timeout: c.QueueTimeout, MaxPerTenant: c.MaxPerTenant}
}

// engineSlots bounds the waits of turns for an instance. They have their place, so that their tenants are within their limits.
func (c *QueueConfig) engineSlots() queue.Config {
	return queue.Config{MaxWaiting: c.MaxQueue, Timeout: c.QueueTimeout}
}

// SetQueue changes the bounds of what waits, while the server runs.
func (s *Server) SetQueue(cfg QueueConfig) {
	s.turnSlots.Configure(cfg.turnSlots())
	s.engineSlots.Configure(cfg.engineSlots())
}

// Waiting is how many turns wait to begin, and how many for an instance.
func (s *Server) Waiting() (toBegin, forInstance int) {
	return s.turnSlots.Waiting(), s.engineSlots.Waiting()
}

// Open is how many turns have their place now.
func (s *Server) Open() int { return len(s.streams) }

// awaitSlot gets the turn one of the places of the server, and waits for it if need be.
func (s *Server) awaitSlot(ctx context.Context, t *turn) error {
	waited, err := s.seat(ctx, t.share.client)
	t.record.queued(waited, err == nil)
	t.placed = err == nil
	return err
}

// seat gets a client one of the places of the server, and waits for it if need be. Whatever reaches engines on behalf of a client needs one.
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

// unseat gives a place back.
func (s *Server) unseat(client string) {
	s.turnSlots.Leave(queue.Claim{Tenant: client})
	<-s.streams
	s.turnSlots.Freed()
}

// leave gives the turn's place back, if it has one.
func (s *Server) leave(t *turn) {
	if t.placed {
		t.placed = false
		s.unseat(t.share.client)
	}
}

// slot is a turn's place on an instance. The zero value is none.
type slot struct {
	of    *queue.Queue // nil if no turn could wait for it
	claim queue.Claim
	free  func() // gives the instance back
	left  atomic.Bool
}

// leave gives the place back, if there is one and it was not given back before. It is safe for concurrent use.
func (r *slot) leave() {
	if r.taken() {
		giveBack(r.of, r.claim, r.free)
	}
}

// taken reports whether there is a place that was not given back, and says from then on that it was.
func (r *slot) taken() bool { return r.free != nil && !r.left.Swap(true) }

func giveBack(of *queue.Queue, claim queue.Claim, free func()) {
	if of != nil {
		of.Leave(claim)
	}
	free() // and the fleet says so, see OnFreed
}

// detach has the place outlive its pair, until the returned function is called. Where there is none, or it was given back before, that
// does nothing.
func (r *slot) detach() (leave func()) {
	if !r.taken() {
		return func() {}
	}
	of, claim, free := r.of, r.claim, r.free
	return func() { giveBack(of, claim, free) }
}

// awaitSlot picks an engine as [fleet.Fleet.Pick] does, and waits while all that could be picked have as much to do as they may. in is
// the turn's place on it from then on.
func (k *picker) awaitSlot(
	ctx context.Context, t *turn, role upstream.Role, hint fleet.Hint, exclude func(*fleet.Engine) bool, in *slot,
) (engine *fleet.Engine, err error) {
	if k.dryRun {
		return k.deps.Fleet.Foresee(role, hint, exclude)
	}
	claim := queue.Claim{Tenant: t.share.client, Class: t.slotClass(role, hint)}
	var free func()
	waited, full := k.engineSlots.Wait(ctx, claim, t.record.Queued, func() bool {
		engine, free, err = k.deps.Fleet.Pick(role, hint, exclude)
		return !errors.Is(err, upstream.ErrBusy) // waiting helps against nothing else
	})
	t.record.queued(waited, full == nil)
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

// longestModel is more than the longest name that an engine's list of models may have (maxModelID of package fleet).
const longestModel = 1 << 10

// slotClass is equal for turns that could be given the same instances.
func (t *turn) slotClass(role upstream.Role, hint fleet.Hint) string {
	// No list of models has a longer name, so that such names are served alike; and the copy is booked on no client.
	model := hint.Model[:min(len(hint.Model), longestModel)]
	class := role.String() + " " + model + " " + t.prefiller
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
