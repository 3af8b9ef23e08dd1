package server

import (
	"context"
	"errors"
	"strings"
	"sync"

	"carryover/server/queue"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// places bounds the waits of turns that are to begin.
func (c *QueueConfig) places() queue.Config {
	return queue.Config{MaxWaiting: c.MaxQueue, Timeout: c.QueueTimeout, MaxPerTenant: c.MaxPerTenant}
}

// rooms bounds the waits of turns for an instance. They have their place, so that their tenants are within their limits.
func (c *QueueConfig) rooms() queue.Config {
	return queue.Config{MaxWaiting: c.MaxQueue, Timeout: c.QueueTimeout}
}

// SetQueue changes the bounds of what waits, while the server runs.
func (s *Server) SetQueue(cfg QueueConfig) {
	s.places.Configure(cfg.places())
	s.rooms.Configure(cfg.rooms())
}

// Waiting is how many turns wait to begin, and how many for an instance.
func (s *Server) Waiting() (toBegin, forInstance int) {
	return s.places.Waiting(), s.rooms.Waiting()
}

// Open is how many turns have their place now.
func (s *Server) Open() int { return len(s.streams) }

// place gets the turn one of the places of the server, and waits for it if need be. leave gives it back.
func (s *Server) place(ctx context.Context, t *turn) (leave func(), _ error) {
	claim := queue.Claim{Tenant: t.share.client}
	waited, err := s.places.Wait(ctx, claim, 0, func() bool {
		select {
		case s.streams <- struct{}{}:
			return true
		default:
			return false
		}
	})
	t.record.queued(waited, err == nil)
	if err != nil {
		return func() {}, err
	}
	return func() {
		s.places.Leave(claim)
		<-s.streams
		s.places.Freed()
	}, nil
}

// room picks an engine as [fleet.Fleet.Pick] does, and waits while all that could be picked have as much to do as they may. done
// gives the place back; further calls do nothing.
func (k *picker) room(
	ctx context.Context, t *turn, role upstream.Role, hint fleet.Hint, exclude func(*fleet.Engine) bool,
) (engine *fleet.Engine, done func(), err error) {
	if k.still {
		engine, err = k.deps.Fleet.Foresee(role, hint, exclude)
		return engine, func() {}, err
	}
	claim := queue.Claim{Tenant: t.share.client, Class: t.roomClass(role, hint)}
	var free func()
	waited, full := k.rooms.Wait(ctx, claim, t.record.Queued, func() bool {
		engine, free, err = k.deps.Fleet.Pick(role, hint, exclude)
		return !errors.Is(err, upstream.ErrBusy) // waiting helps against nothing else
	})
	t.record.queued(waited, full == nil)
	switch {
	case full != nil:
		return nil, nil, full
	case err != nil:
		k.rooms.Leave(claim)
		return nil, nil, err
	}
	var once sync.Once
	return engine, func() {
		once.Do(func() {
			k.rooms.Leave(claim)
			free() // and the fleet says so, see OnFreed
		})
	}, nil
}

// longestModel is more than the longest name that an engine's list of models may have (maxModelID of package fleet).
const longestModel = 1 << 10

// roomClass is equal for turns that could be given the same instances.
func (t *turn) roomClass(role upstream.Role, hint fleet.Hint) string {
	// No list of models has a longer name, so that such names are served alike; and the copy is booked on no client.
	model := hint.Model[:min(len(hint.Model), longestModel)]
	class := role.String() + " " + model + " " + t.prefiller
	if len(t.tries.excluded) == 0 {
		return class
	}
	var b strings.Builder
	b.WriteString(class)
	for _, e := range t.tries.excluded {
		b.WriteString(" -" + e.Name)
	}
	return b.String()
}
