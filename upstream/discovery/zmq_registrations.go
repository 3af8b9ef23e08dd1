package discovery

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"carryover/upstream"
	"carryover/upstream/zmtp"
)

// registrations are the instances that announce themselves.
type registrations struct {
	list list
	ttl  time.Duration
	log  *slog.Logger

	mu      sync.Mutex           // guards the rest; taken before that of the list
	heard   map[string]time.Time // when an instance was last heard of, by its name
	refused int                  // messages that are no announcement, or of one instance too many
	full    bool                 // an instance was refused for want of room since the last was removed
}

func newRegistrations(ttl time.Duration, log *slog.Logger) *registrations {
	if ttl == 0 {
		ttl = defaultTTL
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &registrations{ttl: ttl, log: log, heard: map[string]time.Time{}}
}

// take hears a message of a peer. What is no announcement is dropped, and so is one that finds no room.
func (r *registrations) take(message zmtp.Message) {
	instance, err := parseAnnouncement(message.Frames)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.heard[instance.Name]
	switch {
	case errors.Is(err, errHello):
		return
	case err != nil:
		r.refused++
		r.log.Debug("a message is no registration", "error", err, "refused", r.refused)
		return
	case !known && len(r.heard) >= MaxRegistered:
		r.refused++
		if !r.full {
			r.log.Warn("no room for another instance that registers", "instance", instance.Name, "registered", len(r.heard))
		}
		r.full = true
		return
	}
	r.heard[instance.Name] = time.Now()
	r.list.change(func(all []upstream.Instance) []upstream.Instance { return r.announced(all, instance) })
}

// announced is the list with an instance as it announces itself now. One address is one engine: what it said in another role is
// not true any more.
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

// sweep removes instances that have gone silent. since is the time since the last sweep: where that is much longer than it should be, this
// process or its machine has stood still, and has heard none.
func (r *registrations) sweep(now time.Time, since time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if still := since - 2*sweepInterval; still > 0 {
		for name, heard := range r.heard {
			r.heard[name] = heard.Add(still)
		}
	}
	r.list.change(func(all []upstream.Instance) []upstream.Instance {
		return slices.DeleteFunc(slices.Clone(all), func(i upstream.Instance) bool {
			silent := now.Sub(r.heard[i.Name])
			if silent <= r.ttl {
				return false
			}
			delete(r.heard, i.Name)
			r.full = false
			r.log.Warn("an instance does not register any more, and is removed", "role", i.Role.String(), "instance", i.Name, "silent", silent)
			return true
		})
	})
}
