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

// heard is what is known of an instance that announces itself. Its owner is the connection that announced it first:
// other peers may repeat what the owner says, but change nothing as long as the owner goes on.
type heard struct {
	instance upstream.Instance
	kv       []endpoint // where other engines reach it
	last     time.Time  // when it was announced last, by whichever peer
	owner    string     // the peer
	owned    time.Time  // when the owner has announced it last
}

var errTaken = errors.New("an engine that still announces itself has the address")

// Refusals are announcements that were refused since the start. Each comes every three seconds as long as its sender goes on.
type Refusals struct {
	Malformed  uint64 // not what engines send
	NotAllowed uint64 // at an address that no pattern permits
	Taken      uint64 // with the address of another engine, in another role or with other properties
	Full       uint64 // one engine too many
}

// refusals is Refusals while they grow.
type refusals struct{ malformed, notAllowed, taken, full atomic.Uint64 }

func (r *refusals) read() Refusals {
	return Refusals{Malformed: r.malformed.Load(), NotAllowed: r.notAllowed.Load(), Taken: r.taken.Load(), Full: r.full.Load()}
}

// of is the counter for a reason.
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

// enter keeps what a peer announces, or says why it may not. r.mu is held.
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

// permits applies the allow-list: to host and port of the HTTP address, and to the host of the KV address, whose ports are no one's choice.
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

// kvEndpoints are the endpoints of an address that checkAddress has accepted.
func kvEndpoints(address string) (all []endpoint) {
	long, ok := strings.CutPrefix(address, "host:")
	if !ok {
		e, _ := parseEndpoint(address)
		return []endpoint{e}
	}
	host, ports, _ := strings.Cut(long, ",handshake:")
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
