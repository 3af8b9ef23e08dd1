package discovery

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"carryover/upstream"
)

// DNS has the instances of one role behind a name that is looked up again and again. Create it with ParseDNS. All fields
// have a default but Logger, and none is to be changed once Watch runs.
//
//   - http://name:port is one instance for each address of the name, A and AAAA. A name that has both for the same engine
//     makes two instances of it; srv:// does not.
//   - https://name:port is one instance whose URL keeps the name, because certificates are issued for the name, not for
//     addresses. It is there while the name has an address. Several addresses of one family are several engines, which
//     cannot be told apart behind one URL: a warning says so, and srvs:// is the way.
//   - srv://name and srvs://name are one instance for each SRV record of the lowest priority, at target and port, over http
//     and https. The target stays a host name, and so fits its certificate. Records of a higher priority stand by: they
//     come in when DNS has none of the lower any more (RFC 2782 says to try them when the lower ones are not reachable;
//     which instances are reachable is for the fleet to find out, not for DNS).
type DNS struct {
	// Resolver does the look-ups; nil means the system's configuration.
	Resolver *net.Resolver
	// Logger is told when look-ups begin to fail, when they succeed again, and when no instance is left.
	Logger *slog.Logger

	role   upstream.Role
	scheme string // of the instances
	srv    bool
	name   string // as it is looked up, perhaps with a dot at its end
	port   string // empty with srv

	interval time.Duration // between two look-ups
}

const (
	// dnsInterval is the time between two look-ups: a new address is used within 15 s, unless a cache on the way keeps the old answer.
	dnsInterval = 10 * time.Second
	// lookUpLimit is the time that Go's resolver and glibc's give one server by default.
	lookUpLimit = 5 * time.Second
)

// ParseDNS reads the name behind which the instances of a role are: http://name:port, https://name:port, srv://name or
// srvs://name. A dot at the end of the name keeps the system's search list from it. The error says what would be accepted.
func ParseDNS(role upstream.Role, raw string) (*DNS, error) {
	refused := func(want string) (*DNS, error) { return nil, fmt.Errorf("name %q: want %s", raw, want) }
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || strings.TrimSuffix(u.Path, "/") != "" || strings.ContainsAny(raw, "?#") {
		return refused("http://name:port, https://name:port, srv://name or srvs://name")
	}
	d := &DNS{role: role, scheme: u.Scheme, name: lower(u.Hostname()), port: u.Port(), interval: dnsInterval}
	switch u.Scheme {
	case "srv", "srvs":
		d.srv, d.scheme = true, map[string]string{"srv": "http", "srvs": "https"}[u.Scheme]
		if strings.Contains(u.Host, ":") {
			return refused("no port: SRV records have their own")
		}
	case "http", "https":
		if _, ok := parsePort(d.port); !ok {
			return refused("a port from 1 to 65535 behind the name")
		}
	default:
		return refused("http://name:port, https://name:port, srv://name or srvs://name")
	}
	if !isDomain(strings.TrimSuffix(d.name, ".")) {
		return refused("a host name; an address needs no look-up, it is an instance")
	}
	return d, nil
}

// Watch looks up every ten seconds and sets the list, again when it has changed, until ctx ends. It returns nil. A failed look-up
// changes nothing, see question. The first list is empty if the first look-up fails, so that the program can start.
func (d *DNS) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	d.follow(ctx, d.questions(), set)
	return nil
}

func (d *DNS) follow(ctx context.Context, questions []*question, set func([]upstream.Instance)) {
	ticker := time.NewTicker(d.interval)
	defer ticker.Stop()
	var last []upstream.Instance
	for first := true; ; first = false {
		all := d.ask(ctx, questions)
		if ctx.Err() != nil {
			return
		}
		if first || !slices.Equal(all, last) {
			if len(all) == 0 {
				d.Logger.Warn("discovery has no instance behind a name", "role", d.role.String(), "name", d.name)
			}
			set(slices.Clone(all))
			last = all
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ask puts all questions at the same time and returns the instances of all answers, each once, sorted by name, because
// resolvers rotate their answers.
func (d *DNS) ask(ctx context.Context, questions []*question) (all []upstream.Instance) {
	ctx, cancel := context.WithTimeout(ctx, lookUpLimit)
	defer cancel()
	var asking sync.WaitGroup
	for _, q := range questions {
		asking.Go(func() { q.put(ctx, d.Resolver, d.Logger.With("role", d.role.String(), "name", d.name, "type", q.kind)) })
	}
	asking.Wait()
	for _, q := range questions {
		all = append(all, q.answer...)
	}
	slices.SortFunc(all, func(a, b upstream.Instance) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Weight, a.Weight))
	})
	return slices.CompactFunc(all, func(a, b upstream.Instance) bool { return a.Name == b.Name })
}

// questions returns one question for SRV records, or one for each family of addresses. A broken resolver may answer A
// and fail AAAA; that must not look like a name that has lost its addresses, nor like one that can't be looked up.
func (d *DNS) questions() []*question {
	if d.srv {
		return []*question{{kind: "SRV", ask: d.services}}
	}
	return []*question{
		{kind: "A", ask: func(ctx context.Context, r *net.Resolver) ([]upstream.Instance, error) {
			return d.addresses(ctx, r, "ip4")
		}},
		{kind: "AAAA", ask: func(ctx context.Context, r *net.Resolver) ([]upstream.Instance, error) {
			return d.addresses(ctx, r, "ip6")
		}},
	}
}

var _ upstream.Source = (*DNS)(nil)
