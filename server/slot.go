package server

import (
	"context"
	"time"

	"carryover/server/queue"
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
