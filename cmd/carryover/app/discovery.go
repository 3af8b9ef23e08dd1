package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
	"carryover/upstream/discovery"
	"carryover/upstream/discovery/kubernetes"
)

type sources struct {
	All      upstream.Source     // the union of the others and of what discovery finds
	listed   *discovery.Listed   // the configuration's lists, which a reload replaces
	registry *discovery.Registry // instances added at run time; nil if that is off
	named    *discovery.Named    // prefill instances that requests name; nil if that is off
	kvHost   string              // for instances whose source has none
	kvTTL    time.Duration       // for decode instances whose source has none
}

// openSources orders the sources: requests, the configuration's lists, discovery, registration. The first source of an instance counts.
func openSources(cfg config.Config, logger *slog.Logger) (sources, error) {
	s := sources{listed: &discovery.Listed{}, kvHost: cfg.KV.Host, kvTTL: cfg.Store.DecoderKVTTL}
	s.listed.Replace(cfg.Listed())
	found, err := newFinders(cfg, logger)
	if err != nil {
		return sources{}, err
	}
	all := append([]upstream.Source{s.listed}, found...)
	if cfg.Discovery.Registration {
		s.registry = &discovery.Registry{}
		all = append(all, s.registry)
	}
	if len(cfg.Routing.PrefillerAllow) > 0 {
		var allow []discovery.Pattern
		for _, text := range cfg.Routing.PrefillerAllow {
			pattern, err := discovery.ParsePattern(text)
			if err != nil {
				return sources{}, err
			}
			allow = append(allow, pattern)
		}
		s.named = discovery.NewNamed(allow)
		all = append([]upstream.Source{s.named}, all...) // first, because its instances must keep their names
	}
	s.All = discovery.Together{Sources: all, Logger: logger}
	return s, nil
}

func newFinders(cfg config.Config, logger *slog.Logger) (found []upstream.Source, err error) {
	d := cfg.Discovery
	if d.File != "" {
		found = append(found, &discovery.File{Path: d.File, Parse: cfg.ReadInstances, Logger: logger})
	}
	for _, role := range upstream.Roles() {
		for _, name := range d.Names(role.String()) {
			dns, err := discovery.ParseDNS(role, name)
			if err != nil {
				return nil, err
			}
			dns.Logger = logger
			found = append(found, dns)
		}
	}
	if d.K8sLabelSelector != "" {
		source, err := kubernetes.New(NewKubernetes(d, logger))
		if err != nil {
			return nil, fmt.Errorf("discovery.k8s: %w", err)
		}
		found = append(found, source)
	}
	return found, nil
}

// NewKubernetes configures the search for pods in the program's own cluster.
func NewKubernetes(d config.DiscoveryConfig, logger *slog.Logger) kubernetes.Config {
	return kubernetes.Config{
		APIHost: os.Getenv("KUBERNETES_SERVICE_HOST"), APIPort: os.Getenv("KUBERNETES_SERVICE_PORT"),
		Namespace: d.K8sNamespace, LabelSelector: d.K8sLabelSelector, Port: d.K8sPort,
		PrefillLabels: d.PrefillModelLabels, DecodeLabels: d.DecodeModelLabels, Logger: logger,
	}
}

// completed fills in what a source leaves empty; the source keeps its own list.
func (s *sources) completed(instances []upstream.Instance) []upstream.Instance {
	all := slices.Clone(instances)
	for n := range all {
		all[n].KVHost = cmp.Or(all[n].KVHost, s.kvHost)
		if all[n].Role == upstream.RoleDecode {
			all[n].KVTTL = cmp.Or(all[n].KVTTL, s.kvTTL)
		}
	}
	return all
}

// watch keeps the fleet equal to the source until ctx ends, and closes known with the first list. It fails if the source fails, or ends
// without a list.
func (p *Proxy) watch(ctx context.Context, known chan struct{}) error {
	first := sync.OnceFunc(func() { close(known) })
	err := p.Sources.All.Watch(ctx, func(instances []upstream.Instance) {
		p.Fleet.Set(p.Sources.completed(instances))
		p.kvEvents.follow()
		first()
	})
	if ctx.Err() != nil {
		return nil // an error during shutdown has no use
	}
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	select {
	case <-known:
		return nil
	default:
		return errors.New("discovery ended before it gave a list of instances")
	}
}
