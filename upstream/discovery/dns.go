package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"carryover/upstream"
)

// DNS has the instances of one role behind a name that it looks up periodically. Create it with ParseDNS.
// All fields but Logger have a default. They must not change once Watch runs.
//
//   - http://name:port is one instance for each address of the name, A and AAAA. An engine with an address of each family
//     becomes two instances; srv:// avoids that.
//   - https://name:port is one instance, as long as the name has an address. Its URL keeps the name, because certificates
//     are issued for names. Several addresses of one family are several engines behind one URL: a warning recommends
//     srvs://.
//   - srv://name and srvs://name are one instance for each SRV record of the lowest priority, at target and port, over http
//     and https. The target stays a host name, and so fits its certificate. Records of a higher priority come in when DNS
//     has none of the lower any more. RFC 2782 tries them when the lower ones are not reachable; here the fleet finds out
//     which instances are reachable.
type DNS struct {
	// Resolver does the look-ups; nil means the system's configuration.
	Resolver *net.Resolver
	// Logger learns when look-ups begin to fail, when they succeed again, and when no instance is left.
	Logger *slog.Logger

	role   upstream.Role
	scheme string // of the instances
	srv    bool
	name   string // as it is looked up, perhaps with a dot at its end
	port   string // empty with srv

	interval time.Duration // between two look-ups
}

const (
	// dnsInterval: a new address is used within 15 s, unless a cache on the way keeps the old answer.
	dnsInterval = 10 * time.Second
	// lookUpLimit is the time that Go's resolver and glibc's give one server by default.
	lookUpLimit = 5 * time.Second
)

// ParseDNS reads http://name:port, https://name:port, srv://name or srvs://name. A dot at the end of the name keeps the system's
// search list from it. The error says what would be accepted.
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

// Watch looks up every ten seconds and sets the list when it has changed, until ctx ends; it returns nil. A failed look-up changes
// nothing, see question. The first list is empty if the first look-up fails, so that the program can start.
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

// ask returns the instances of all answers, each once, sorted by name, because resolvers rotate their answers.
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

// questions returns one question for SRV records, or one for each family of addresses: a broken resolver may answer A and fail AAAA,
// which is neither a name without addresses nor a failed look-up.
func (d *DNS) questions() []*question {
	if d.srv {
		return []*question{{kind: "SRV", ask: d.services}}
	}
	var both []*question
	for _, family := range [...]struct{ kind, network string }{{"A", "ip4"}, {"AAAA", "ip6"}} {
		both = append(both, &question{kind: family.kind, ask: func(ctx context.Context, r *net.Resolver) ([]upstream.Instance, error) {
			return d.addresses(ctx, r, family.network)
		}})
	}
	return both
}

// question is one look-up of a name, with its last answers.
//
// Names flap: a headless service has no records for a moment while its pods are replaced, and a resolver that restarts answers
// NXDOMAIN or SERVFAIL. The fleet forgets all that it knows of dropped engines, so in doubt they are kept: an answer without records
// counts when it is the third in a row, and a failure (SERVFAIL, REFUSED, a time-out) never counts. Engines that are really gone fail
// their probes meanwhile.
type question struct {
	kind    string // of the records
	ask     func(context.Context, *net.Resolver) ([]upstream.Instance, error)
	answer  []upstream.Instance // the last one that counted
	none    int                 // answers without records in a row
	failed  bool                // the last look-up failed
	several bool                // the last answer had several addresses of one instance
}

const emptyAnswers = 3

// put asks once. It logs when asking begins to fail, and when it succeeds again.
func (q *question) put(ctx context.Context, resolver *net.Resolver, logger *slog.Logger) {
	answer, err := q.insist(ctx, resolver)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return // ctx has ended, which says nothing of the name
	}
	if err != nil {
		q.none = 0
		if !q.failed {
			logger.Warn("a look-up failed, the last instances stay", "instances", len(q.answer), "error", err)
		}
		q.failed = true
		return
	}
	if q.failed {
		logger.Info("look-ups are answered again")
	}
	q.failed = false
	several := len(answer) > 1 && answer[0] == answer[1]
	if several && !q.several {
		logger.Warn("a name behind https has several addresses, which cannot be told apart; use srvs", "addresses", len(answer))
	}
	q.several = several
	if len(answer) > 0 {
		q.answer, q.none = answer, 0
		return
	}
	if q.none++; q.none >= emptyAnswers {
		q.answer = nil
	}
}

// insist repeats a failed question for the exact name; the answer counts if it has records. After a failure, Go's resolver goes on
// along the system's search list and may return "no such host" for another name. If one name of the list always fails, the others
// would never be asked.
func (q *question) insist(ctx context.Context, resolver *net.Resolver) ([]upstream.Instance, error) {
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	strict := &net.Resolver{PreferGo: resolver.PreferGo, StrictErrors: true, Dial: resolver.Dial}
	answer, err := q.ask(ctx, strict)
	if err == nil || isNotFound(err) {
		return answer, nil
	}
	if answer, second := q.ask(ctx, resolver); second == nil && len(answer) > 0 {
		return answer, nil
	}
	return nil, err
}

// isNotFound reports whether the name has no such records: NXDOMAIN, an answer without records, or addresses of the other family only.
func isNotFound(err error) bool {
	var answered *net.DNSError
	var family *net.AddrError
	return errors.As(err, &answered) && answered.IsNotFound || errors.As(err, &family)
}

func (d *DNS) addresses(ctx context.Context, resolver *net.Resolver, family string) (all []upstream.Instance, err error) {
	found, err := resolver.LookupNetIP(ctx, family, d.name)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	host := d.name
	for _, addr := range slices.Compact(found) {
		if addr.IsUnspecified() || addr.IsMulticast() || addr.Zone() != "" {
			continue // 0.0.0.0 means no host, and would be dialled as this machine
		}
		if d.scheme == "http" {
			host = addr.String()
		}
		all = append(all, d.instance(host, d.port))
	}
	return all, nil
}

func (d *DNS) services(ctx context.Context, resolver *net.Resolver) (all []upstream.Instance, err error) {
	_, records, err := resolver.LookupSRV(ctx, "", "", d.name)
	if err != nil && len(records) == 0 {
		return nil, err
	}
	// Records come sorted by priority. Go has left out records whose target is no host name, and returned an error for them; the
	// target "." means that there is no such service (RFC 2782).
	equal := true
	for _, record := range records {
		host := lower(strings.TrimSuffix(record.Target, "."))
		if record.Priority != records[0].Priority || record.Port == 0 || !upstream.IsHost(host) {
			continue
		}
		instance := d.instance(host, strconv.Itoa(int(record.Port)))
		instance.Weight = max(1, int(record.Weight))
		all = append(all, instance)
		equal = equal && instance.Weight == all[0].Weight
	}
	for i := range all {
		if equal {
			// Equal weights are dropped: CoreDNS gives each of n pods the weight 100/n, which would change all instances whenever one
			// pod comes or goes.
			all[i].Weight = 1
		}
	}
	return all, nil
}

func (d *DNS) instance(host, port string) upstream.Instance {
	authority := net.JoinHostPort(host, port)
	return upstream.Instance{Name: authority, BaseURL: d.scheme + "://" + authority, Role: d.role}
}
