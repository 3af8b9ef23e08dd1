package discovery

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"carryover/upstream"
)

// question is one look-up of a name, with its last answers.
//
// Names flap: a headless service has no records for a moment while its pods are replaced, and a resolver that restarts
// answers NXDOMAIN or SERVFAIL. The fleet forgets all that it knows of engines that are dropped, so in doubt they are
// kept: an answer without records counts when it is the third in a row, and a failure (SERVFAIL, REFUSED, a time-out)
// never counts. Engines that are really gone do not answer their probes meanwhile.
type question struct {
	kind    string // of the records
	ask     func(context.Context, *net.Resolver) ([]upstream.Instance, error)
	answer  []upstream.Instance // the last one that counted
	none    int                 // answers without records in a row
	failed  bool                // the last look-up failed
	several bool                // the last answer had several addresses of one instance
}

// emptyAnswers is how many answers without records in a row count as such.
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
			logger.Warn("a look-up has no answer, the instances of the last one stay", "instances", len(q.answer), "error", err)
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

// insist asks a resolver whose failures must not be hidden. After a failure, Go's resolver goes on along the system's
// search list and may return "no such host" for another name. If one name of the list always fails, the others would
// never be asked. So after a failure the name is asked once more as it is, and the answer counts if it has records.
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

// isNotFound reports whether the name has no such records: NXDOMAIN, an answer without records, or addresses of the
// other family only.
func isNotFound(err error) bool {
	var answered *net.DNSError
	var family *net.AddrError
	return errors.As(err, &answered) && answered.IsNotFound || errors.As(err, &family)
}

// addresses looks up the addresses of one family.
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

// services looks up the SRV records.
func (d *DNS) services(ctx context.Context, resolver *net.Resolver) (all []upstream.Instance, err error) {
	_, records, err := resolver.LookupSRV(ctx, "", "", d.name)
	if err != nil && len(records) == 0 {
		return nil, err
	}
	// Records come sorted by priority. Go has left out records whose target is no host name, and returned an error for
	// them; the target "." means that there is no such service (RFC 2782).
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
			// Equal weights are dropped. CoreDNS gives each of n pods the weight 100/n, which would change all
			// instances whenever one pod comes or goes.
			all[i].Weight = 1
		}
	}
	return all, nil
}

// instance returns the instance at host and port. cmd adds the other settings.
func (d *DNS) instance(host, port string) upstream.Instance {
	authority := net.JoinHostPort(host, port)
	return upstream.Instance{Name: authority, BaseURL: d.scheme + "://" + authority, Role: d.role}
}
