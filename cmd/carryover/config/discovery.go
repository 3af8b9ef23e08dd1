package config

import (
	"carryover/upstream"
	"carryover/upstream/discovery"
)

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
	return d.Registration || d.File != "" || len(d.Names(role)) > 0 || d.K8sLabelSelector != "" ||
		role == RolePrefill && len(c.Routing.PrefillerAllow) > 0
}

// completeRole removes the default instances of a role if other sources can supply instances.
func completeRole(v *validation, c *Config, role string) {
	if c.Finds(role) && !v.given(role) {
		*c.Instances(role) = nil
	}
}

func validateDiscovery(v *validation, c *Config) {
	d := &c.Discovery
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, name := range d.Names(role.String()) {
			if _, err := discovery.ParseDNS(role, name); err != nil {
				v.fault("discovery."+role.String()+"_dns", name, "http://name:port, https://name:port, srv://_service._tcp.name or srvs://…")
			}
		}
	}
	validatePatterns(v, "routing.prefiller_allow", c.Routing.PrefillerAllow)
	if d.Registration && c.Admin.Listen == AdminOff {
		v.fault("discovery.registration", "true", "admin.listen beside it")
	}
	if d.K8sLabelSelector != "" {
		validateKubernetes(v, d)
	}
}

func validatePatterns(v *validation, key string, patterns []string) {
	for _, pattern := range patterns {
		if _, err := discovery.ParsePattern(pattern); err != nil {
			v.fault(key, pattern, "host:port, CIDR:port or *.domain:port, of one port or from-to")
		}
	}
}

func validateKubernetes(v *validation, d *DiscoveryConfig) {
	if d.K8sPort == "" {
		v.fault("discovery.k8s_port", "", "a number or a name")
	}
	for _, label := range d.PrefillModelLabels {
		for _, other := range d.DecodeModelLabels {
			if label == other {
				v.fault("discovery.decode_model_labels", label, "values that prefill instances do not have")
			}
		}
	}
}
