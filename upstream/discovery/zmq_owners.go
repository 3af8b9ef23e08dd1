package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"carryover/upstream"
)

// heard is an instance that announces itself. Its owner is the connection that announced it first: as long as the owner
// keeps announcing it, other peers may repeat the announcement, but not change it.
type heard struct {
	instance upstream.Instance
	kv       []endpoint // where other engines reach it
	last     time.Time  // the last announcement, by any peer
	owner    string     // the owner's connection
	owned    time.Time  // the owner's last announcement
}

var errTaken = errors.New("an engine that still announces itself has the address")

// Refusals counts the announcements that were refused since the process started. A sender repeats its announcement every three
// seconds, and each counts.
type Refusals struct {
	Malformed  uint64 // not in a form that engines send
	NotAllowed uint64 // with an address that no pattern permits
	Taken      uint64 // with the address of another engine, in another role or with other properties
	Full       uint64 // beyond the greatest number of engines
}

// refusals has the running counters behind Refusals.
type refusals struct{ malformed, notAllowed, taken, full atomic.Uint64 }

func (r *refusals) read() Refusals {
	return Refusals{Malformed: r.malformed.Load(), NotAllowed: r.notAllowed.Load(), Taken: r.taken.Load(), Full: r.full.Load()}
}

// of returns the counter for a reason.
func (r *refusals) of(why error) *atomic.Uint64 {
	switch {
	case errors.Is(why, errTaken):
		return &r.taken
	case errors.Is(why, ErrFull):
		return &r.full
	case errors.Is(why, errNotPermitted):
		return &r.notAllowed
	}
	return &r.malformed
}

// enter keeps an instance that a peer announces, or returns why the peer may not announce it. The caller holds r.mu.
func (r *registrations) enter(instance upstream.Instance, peer string, now time.Time) error {
	known, kv := r.heard[instance.Name], kvEndpoints(instance.Announced.Address)
	same := known != nil && known.instance == instance
	if r.holds(known, peer, now) {
		if !same {
			return fmt.Errorf("%w: %s", errTaken, instance.Name)
		}
		known.last = now
		return nil
	}
	if !same {
		if err := r.permits(instance, kv); err != nil {
			return err
		}
		for name, other := range r.heard {
			if name != instance.Name && r.holds(other, peer, now) && slices.ContainsFunc(kv, func(e endpoint) bool { return slices.Contains(other.kv, e) }) {
				return fmt.Errorf("%w: the KV address %s is that of %s", errTaken, instance.Announced.Address, name)
			}
		}
	}
	if known == nil && len(r.heard) >= MaxRegistered {
		return ErrFull
	}
	r.heard[instance.Name] = &heard{instance: instance, kv: kv, last: now, owner: peer, owned: now}
	return nil
}

// holds reports whether another peer owns an instance and still announces it. A connection that has ended holds its
// instance for just as long, so that no peer takes over an engine while it restarts or reconnects.
func (r *registrations) holds(known *heard, peer string, now time.Time) bool {
	return known != nil && known.owner != peer && now.Sub(known.owned) <= r.ttl
}

// permits applies the allow-list to host and port of the HTTP address, and to the host of the KV address, whose ports operators do not
// choose.
func (r *registrations) permits(instance upstream.Instance, kv []endpoint) error {
	if r.own != nil && r.own(instance.Authority()) {
		return fmt.Errorf("http_address %s is this program's own: %w", instance.Authority(), errNotPermitted)
	}
	if len(r.allow) == 0 {
		return nil
	}
	at, err := parseEndpoint(instance.Authority())
	if err != nil {
		return fmt.Errorf("http_address: %w", err)
	}
	if !slices.ContainsFunc(r.allow, func(p Pattern) bool { return p.permits(at) }) {
		return fmt.Errorf("http_address %s: %w", at, errNotPermitted)
	}
	for _, e := range kv {
		if !slices.ContainsFunc(r.allow, func(p Pattern) bool { return p.permitsHost(e) }) {
			return fmt.Errorf("zmq_address %s: %w", e, errNotPermitted)
		}
	}
	return nil
}

// kvEndpoints returns the endpoints of an address that checkAddress has accepted.
func kvEndpoints(address string) (all []endpoint) {
	host, ports, _ := strings.Cut(strings.TrimPrefix(address, "host:"), ",handshake:")
	handshake, notify, _ := strings.Cut(ports, ",notify:")
	for _, port := range []string{handshake, notify} {
		e, _ := parseAnnounced(host + ":" + port)
		all = append(all, e)
	}
	return all
}

// refuse counts a refusal and logs it, once a minute for each reason, because a peer repeats itself every three
// seconds. r.mu is held.
func (r *registrations) refuse(instance upstream.Instance, peer string, why error, now time.Time) {
	count := r.refused.of(why)
	n := count.Add(1)
	if count == &r.refused.malformed {
		r.log.Debug("a message is no registration", "peer", peer, "error", why, "refused", n)
		return
	}
	if last, found := r.said[count]; found && now.Sub(last) < time.Minute {
		return
	}
	r.said[count] = now
	r.log.Warn("an engine may not register", "peer", peer, "role", instance.Role.String(), "instance", instance.Name, "why", why, "refused", n)
}
