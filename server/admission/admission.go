// Package admission bounds how many requests are served at once. It gives clients slots of the server. Requests without a slot wait in
// fair shares, first for a slot of the server and then for one of an instance. It refuses requests that would wait too long, and all that
// wait once the server drains.
package admission

import (
	"context"
	"sync/atomic"
	"time"

	"carryover/server/queue"
)

// QueueConfig bounds the turns that wait for a slot. It can be changed while the server runs.
type QueueConfig struct {
	MaxQueue     int           // turns that wait to begin, and as many that wait for an instance; 0 refuses a turn that has no slot at once
	QueueTimeout time.Duration // bounds all waits of a turn together
	MaxPerTenant int           // turns of one tenant at once, waiting ones too; 0 is no limit
}

// Slots are the slots of a server, and the queues in which requests wait for them and for instances. They are safe for concurrent use.
type Slots struct {
	taken     chan struct{} // has one element for each slot that is taken
	begin     *queue.Queue  // requests that wait for a slot of the server
	Instances *queue.Queue  // turns that wait for a slot of an instance
	closed    atomic.Bool
}

// New returns this many slots, all free.
func New(most int, cfg QueueConfig) *Slots {
	s := &Slots{taken: make(chan struct{}, most), begin: queue.New(queue.Config{}), Instances: queue.New(queue.Config{})}
	s.Configure(cfg)
	return s
}

// Configure changes the limits of both queues. Only turns that wait to begin need the limit per tenant: the others have a slot.
func (s *Slots) Configure(cfg QueueConfig) {
	s.begin.Configure(queue.Config{MaxWaiting: cfg.MaxQueue, Timeout: cfg.QueueTimeout, MaxPerTenant: cfg.MaxPerTenant})
	s.Instances.Configure(queue.Config{MaxWaiting: cfg.MaxQueue, Timeout: cfg.QueueTimeout})
}

// Take returns a slot, and waits for one if all are taken. Every request to engines on behalf of a client needs a slot. Errors come from package
// queue, or are the cause with which ctx ended.
func (s *Slots) Take(ctx context.Context, client string) (lease Lease, waited time.Duration, err error) {
	waited, err = s.begin.Wait(ctx, queue.Claim{Tenant: client}, 0, func() bool {
		select {
		case s.taken <- struct{}{}:
			return true
		default:
			return false
		}
	})
	if err != nil {
		return Lease{}, waited, err
	}
	return Lease{of: s, client: client}, waited, nil
}

// Waiting returns how many requests wait to begin, and how many turns wait for an instance.
func (s *Slots) Waiting() (toBegin, forInstance int) { return s.begin.Waiting(), s.Instances.Waiting() }

// Open returns how many slots are taken.
func (s *Slots) Open() int { return len(s.taken) }

// Delay returns how long turns have waited recently.
func (s *Slots) Delay() time.Duration { return max(s.begin.Delay(), s.Instances.Delay()) }

// Close refuses the requests that wait, and later ones, so that clients go to another server. Slots stay taken.
func (s *Slots) Close() {
	s.closed.Store(true)
	s.begin.Close()
	s.Instances.Close()
}

// Closed reports whether Close was called.
func (s *Slots) Closed() bool { return s.closed.Load() }

// Lease is a client's hold of one slot. The zero value holds none. A copy holds the same slot: only one of them may be given back.
type Lease struct {
	of     *Slots
	client string
}

// GiveBack frees the slot, if the lease holds one.
func (l *Lease) GiveBack() {
	of := l.of
	if of == nil {
		return
	}
	l.of = nil
	of.begin.Leave(queue.Claim{Tenant: l.client})
	<-of.taken
	of.begin.Freed()
}
