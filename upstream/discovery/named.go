package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"carryover/upstream"
)

// MaxNamed is how many prefill instances Named keeps. Each is probed, so requests must not create more than a fleet has.
const MaxNamed = 256

// Named has the prefill instances that requests name by host and port, as llm-d's endpoint picker does in
// x-prefiller-host-port, if a pattern permits them. Create it with NewNamed. It is safe for concurrent use.
//
// Its instances are named by their addresses and must keep these names: it must be the only source of prefill instances,
// or the first one of Together.
type Named struct {
	allow []Pattern
	list  list

	mu   sync.Mutex           // taken before the list's mutex
	used map[string]time.Time // when an instance of the list was last named
}

const namedIdle = 10 * time.Minute

// NewNamed returns a source without instances.
func NewNamed(allow []Pattern) *Named { return &Named{allow: allow, used: map[string]time.Time{}} }

// Admit returns the name of the prefill instance at hostPort, its canonical host:port. It adds a new instance, and returns
// when each Watch has called set; if there are too many, it drops the one unused for longest. A known instance costs one
// map look-up. The error says why the instance is not permitted, and does not repeat the patterns.
func (n *Named) Admit(hostPort string) (name string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.used[hostPort]; known {
		n.used[hostPort] = time.Now()
		return hostPort, nil
	}
	e, err := parseEndpoint(hostPort)
	if err != nil {
		return "", fmt.Errorf("prefill instance %.80q: %w", hostPort, err)
	}
	name = e.String()
	if !slices.ContainsFunc(n.allow, func(p Pattern) bool { return p.permits(e) }) {
		return "", fmt.Errorf("prefill instance %q: %w", name, errNotPermitted)
	}
	_, known := n.used[name]
	n.used[name] = time.Now()
	if known { // it was named in another spelling
		return name, nil
	}
	if len(n.used) > MaxNamed {
		longest := slices.MinFunc(slices.Collect(maps.Keys(n.used)), func(a, b string) int { return n.used[a].Compare(n.used[b]) })
		delete(n.used, longest)
	}
	n.publish(name)
	return name, nil
}

var errNotPermitted = errors.New("no pattern permits host and port")

// publish sets the list to the names in use, with added at its end. n.mu is held.
func (n *Named) publish(added ...string) {
	n.list.change(func(all []upstream.Instance) []upstream.Instance {
		all = slices.DeleteFunc(slices.Clone(all), func(i upstream.Instance) bool {
			_, inUse := n.used[i.Name]
			return !inUse
		})
		for _, name := range added {
			all = append(all, upstream.Instance{Name: name, BaseURL: "http://" + name, Role: upstream.RolePrefill})
		}
		return all
	})
}

// Watch sets the list after each change, and drops instances that no request has named for namedIdle, until ctx ends. It
// returns nil.
func (n *Named) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	var dropping sync.WaitGroup
	dropping.Go(func() { n.dropUnused(ctx) })
	defer dropping.Wait()
	return n.list.Watch(ctx, set)
}

// dropUnused looks ten times per idle time, so an instance stays at most a tenth longer.
func (n *Named) dropUnused(ctx context.Context) {
	ticker := time.NewTicker(namedIdle / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		n.mu.Lock()
		for name, last := range n.used {
			if time.Since(last) >= namedIdle {
				delete(n.used, name)
			}
		}
		n.publish()
		n.mu.Unlock()
	}
}

// Pattern permits endpoints: addresses by network, or names as text, both at a range of ports. A name is never resolved to
// match a network, and an address never matches a name, so DNS does not change which endpoints a pattern permits. But DNS
// decides where a permitted name leads: a pattern by name trusts the DNS zone, and everybody who may change it.
type Pattern struct {
	network  netip.Prefix // valid if the pattern is for addresses
	name     string       // or the one permitted name
	suffix   string       // or the end of permitted names, which have at least one label before; it begins with a dot
	from, to uint16
}

// ParsePattern reads host:port or host:from-to. The host is an address (10.0.0.1, [fd00::1]), a network (10.0.0.0/8,
// [fd00::]/8), a name (prefill-0), or *.suffix for all names below it. The error says what would be accepted.
func ParsePattern(text string) (Pattern, error) {
	refused := func(why error) (Pattern, error) { return Pattern{}, fmt.Errorf("pattern %q: %w", text, why) }
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return refused(errNoEndpoint)
	}
	p, host := Pattern{}, text[:i]
	from, to, ranged := strings.Cut(text[i+1:], "-")
	if !ranged {
		to = from
	}
	var fromOK, toOK bool
	p.from, fromOK = parsePort(from)
	p.to, toOK = parsePort(to)
	if !fromOK || !toOK || p.from > p.to {
		return refused(errors.New("want a port or a range such as 8000-8100 behind the last colon"))
	}
	if suffix, wild := strings.CutPrefix(host, "*."); wild {
		if p.suffix = "." + lower(suffix); !isDomain(p.suffix[1:]) {
			return refused(errors.New("want *.name for the names below it"))
		}
		return p, nil
	}
	address, bits, network := strings.Cut(host, "/")
	e, err := parseHost(address)
	if err == nil && !network {
		err = e.check() // not for a network, whose first address may be no machine's
	}
	if err != nil {
		return refused(err)
	}
	switch {
	case network:
		p.network, err = netip.ParsePrefix(e.host + "/" + bits)
		if err != nil || p.network.Masked() != p.network || e.addr.Is4In6() {
			return refused(errors.New("want a network whose bits after the prefix are 0, such as 10.0.0.0/8 or [fd00::]/8"))
		}
	case e.addr.IsValid():
		p.network = netip.PrefixFrom(e.addr, e.addr.BitLen())
	default:
		p.name = e.host
	}
	return p, nil
}

func (p Pattern) permits(e endpoint) bool {
	switch {
	case e.port < p.from || e.port > p.to:
		return false
	case e.addr.IsValid():
		return p.network.Contains(e.addr)
	case p.suffix != "":
		return strings.HasSuffix(e.host, p.suffix)
	}
	return p.name != "" && e.host == p.name
}
