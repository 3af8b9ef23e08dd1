package discovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/zmq/zmtp"
)

// registrations are the instances that announce themselves.
type registrations struct {
	list    list
	ttl     time.Duration
	allow   []Pattern // permitted addresses of engines, empty for all
	own     func(authority string) bool
	log     *slog.Logger
	refused *refusals

	mu    sync.Mutex                   // guards the rest; taken before that of the list
	heard map[string]*heard            // by name
	said  map[*atomic.Uint64]time.Time // when a refusal for a reason was last logged
}

func newRegistrations(z *ZMQ, refused *refusals) *registrations {
	log := z.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &registrations{
		ttl: cmp.Or(z.TTL, defaultTTL), allow: z.Allow, own: z.Own, log: log, refused: refused, heard: map[string]*heard{}, said: map[*atomic.Uint64]time.Time{},
	}
}

// take handles a message of a peer. It drops a message that is not an announcement or is not allowed.
func (r *registrations) take(message zmtp.Message) {
	instance, err := parseAnnouncement(message.Frames)
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, errHello) {
		return
	}
	now := time.Now()
	if err == nil {
		err = r.enter(instance, message.Peer, now)
	}
	if err != nil {
		r.refuse(instance, message.Peer, err, now)
		return
	}
	r.list.change(func(all []upstream.Instance) []upstream.Instance { return r.announced(all, instance) })
}

// announced returns the list with an instance as it announces itself now. An address is one engine, so its entry in
// another role is removed.
func (r *registrations) announced(all []upstream.Instance, instance upstream.Instance) []upstream.Instance {
	at := slices.IndexFunc(all, func(i upstream.Instance) bool { return i.Name == instance.Name })
	about := []any{
		"role", instance.Role.String(), "instance", instance.Name, "kv_address", instance.Announced.Address, "transfer_mode", instance.Announced.Mode,
	}
	switch {
	case at < 0:
		r.log.Info("an instance registers", about...)
		return append(slices.Clip(all), instance)
	case all[at] != instance:
		r.log.Warn("an instance registers with other properties", about...)
		all = slices.Clone(all)
		all[at] = instance
	}
	return all
}

// sweepUntil removes instances that have gone silent, until ctx ends.
func (r *registrations) sweepUntil(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		r.sweep(now, upstream.Elapsed(last, now))
		last = now
	}
}

// sweep removes instances that have gone silent. since is the time since the last sweep: if that is much longer than
// sweepInterval, this process or its machine has stood still and heard no announcements, so that time does not count.
func (r *registrations) sweep(now time.Time, since time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if still := since - 2*sweepInterval; still > 0 {
		for _, known := range r.heard {
			known.last, known.owned = known.last.Add(still), known.owned.Add(still)
		}
	}
	r.list.change(func(all []upstream.Instance) []upstream.Instance {
		return slices.DeleteFunc(slices.Clone(all), func(i upstream.Instance) bool {
			silent := now.Sub(r.heard[i.Name].last)
			if silent <= r.ttl {
				return false
			}
			delete(r.heard, i.Name)
			r.log.Warn("an instance does not register any more, and is removed", "role", i.Role.String(), "instance", i.Name, "silent", silent)
			return true
		})
	})
}
