package config

import (
	"strings"

	"carryover/upstream"
	"carryover/upstream/discovery"
)

// k8sPods is the value of DiscoveryConfig.K8sResource that makes each pod an instance.
const k8sPods = "pods"

// Names returns the DNS names of the instances of a role.
func (d *DiscoveryConfig) Names(role string) []string {
	if role == RolePrefill {
		return d.PrefillDNS
	}
	return d.DecodeDNS
}

// Finds reports whether instances of a role can come from a source besides the lists of the configuration.
func (c *Config) Finds(role string) bool {
	d := &c.Discovery
	return d.Registration || d.File != "" || d.ZMQListen != "" || len(d.Names(role)) > 0 || d.K8sLabelSelector != "" ||
		role == RolePrefill && len(c.Routing.PrefillerAllow) > 0
}

// completeRole removes the default instances of a role if other sources can supply instances.
func (l *Loader) completeRole(role string) {
	if l.cfg.Finds(role) && !l.given(role) {
		*l.cfg.Instances(role) = nil
	}
}

func (l *Loader) validateDiscovery() {
	d := &l.cfg.Discovery
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, name := range d.Names(role.String()) {
			if _, err := discovery.ParseDNS(role, name); err != nil {
				l.fault("discovery."+role.String()+"_dns", name, "http://name:port, https://name:port, srv://_service._tcp.name or srvs://…")
			}
		}
	}
	l.validatePatterns("routing.prefiller_allow", l.cfg.Routing.PrefillerAllow)
	l.validatePatterns("discovery.zmq_allow", d.ZMQAllow)
	if d.Registration && l.cfg.Admin.Listen == AdminOff {
		l.fault("discovery.registration", "true", "admin.listen beside it")
	}
	if d.K8sLabelSelector == "" {
		l.refuseWithoutSelector()
	} else {
		l.validateKubernetes()
	}
}

func (l *Loader) validatePatterns(key string, patterns []string) {
	for _, pattern := range patterns {
		if _, err := discovery.ParsePattern(pattern); err != nil {
			l.fault(key, pattern, "host:port, CIDR:port or *.domain:port, of one port or from-to")
		}
	}
}

// refuseWithoutSelector reports Kubernetes settings that have no effect without a label selector.
func (l *Loader) refuseWithoutSelector() {
	defaults := Default()
	usual := discoverySettings(&defaults)
	for i, s := range discoverySettings(&l.cfg) {
		kubernetes := strings.HasPrefix(s.Key, "discovery.k8s_") || strings.HasSuffix(s.Key, "_model_labels")
		if kubernetes && FormatValue(s.To) != FormatValue(usual[i].To) {
			l.fault(s.Key, FormatValue(s.To), "discovery.k8s_label_selector beside it")
		}
	}
}

func (l *Loader) validateKubernetes() {
	d := &l.cfg.Discovery
	if d.K8sPort == "" {
		l.fault("discovery.k8s_port", "", "a number or a name")
	}
	if d.K8sModelLabel == "" {
		l.fault("discovery.k8s_model_label", "", "the name of a label")
	}
	for _, label := range d.PrefillModelLabels {
		for _, other := range d.DecodeModelLabels {
			if label == other {
				l.fault("discovery.decode_model_labels", label, "values that prefill instances do not have")
			}
		}
	}
}
