package config

import (
	"fmt"
	"slices"
	"strconv"

	"carryover/upstream"
	"carryover/upstream/discovery"
)

// The roles of instances, and the keys of their lists.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

func instancesAt(urls ...string) (all []InstanceConfig) {
	for _, u := range urls {
		all = append(all, InstanceConfig{Instance: upstream.Instance{BaseURL: u}})
	}
	return all
}

// Instances returns the list of a role.
func (c *Config) Instances(role string) *[]InstanceConfig {
	if role == RolePrefill {
		return &c.Prefill
	}
	return &c.Decode
}

// Names returns the DNS names of a role.
func (d *DiscoveryConfig) Names(role string) []string {
	if role == RolePrefill {
		return d.PrefillDNS
	}
	return d.DecodeDNS
}

// Finds reports whether a role has a source of instances besides its list.
func (c *Config) Finds(role string) bool {
	d := &c.Discovery
	return d.Registration || d.File != "" || len(d.Names(role)) > 0 || d.K8sLabelSelector != "" ||
		role == RolePrefill && len(c.Routing.PrefillerAllow) > 0
}

// RenderServer returns the server that renders prompts, nil if prefill instances do. Its work counts as prefill's.
func RenderServer(cfg ConversationConfig) *upstream.Instance {
	if cfg.Render == "" {
		return nil
	}
	instance, _ := upstream.NewInstance(upstream.RolePrefill, "render", cfg.Render) // validate has accepted it
	return &instance
}

const wantBaseURL = "http://host[:port] or https://host[:port], without path, query and user"

const (
	maxWeight = 1000
	maxRanks  = 64
)

func instanceKey(role string, i int) string { return role + "[" + strconv.Itoa(i) + "]." }

// Listed returns the instances of the lists, each rank as one.
func (c *Config) Listed() (all []upstream.Instance) {
	for _, role := range upstream.Roles() {
		for _, i := range *c.Instances(role.String()) {
			i.Role = role
			all = append(all, discovery.Ranks(i.Instance, i.Ranks)...)
		}
	}
	return all
}

// completeInstances fills in inherited values and normalises URLs. Unreadable values stay for validate.
func completeInstances(v *validation, c *Config) {
	for _, role := range []string{RolePrefill, RoleDecode} {
		if c.Finds(role) && !v.given(role) { // discovery replaces the default instances
			*c.Instances(role) = nil
		}
		list := *c.Instances(role)
		for i := range list {
			inst, key := &list[i], instanceKey(role, i)
			if u, err := upstream.ParseBaseURL(inst.BaseURL); err == nil {
				inst.BaseURL = u.String()
				if inst.Name == "" {
					inst.Name = u.Host
				}
			}
			if !v.given(key + "weight") {
				inst.Weight = 1
			}
			if !v.given(key + "kv_host") {
				inst.KVHost = c.KV.Host
			}
			if role == RoleDecode && !v.given(key+"kv_ttl") {
				inst.KVTTL = c.Store.DecoderKVTTL
			}
		}
	}
}

// completeSecret reads a secret from its file. A secret from another source besides is a fault.
func completeSecret(v *validation, key string, secret *Secret, path string) {
	if path == "" {
		return
	}
	if v.given(key) {
		v.fault(key+"_file", path, "no secret file beside "+key+" from "+v.origins[key])
		return
	}
	text, want := readSecret(path)
	if want != "" {
		v.fault(key+"_file", path, want)
		return
	}
	*secret = text
	v.origins[key] = path
}

// validateRole allows one instance in both roles: vLLM's kv_both serves either.
func validateRole(v *validation, c *Config, role string) {
	list := *c.Instances(role)
	if len(list) == 0 && !c.Finds(role) {
		v.fault(role, "", "at least one instance")
	}
	addresses, names := map[string]int{}, map[string]int{}
	for i, inst := range list {
		key := instanceKey(role, i)
		if _, err := upstream.ParseBaseURL(inst.BaseURL); err != nil {
			v.fault(key+"url", inst.BaseURL, wantBaseURL)
			validateInstance(v, role, i, &inst)
			continue
		}
		at := inst.Authority() // http://a and http://a:80 are equal
		if first, taken := addresses[at]; taken {
			v.fault(key+"url", inst.BaseURL, fmt.Sprintf("each %s instance once, this is %s[%d] again", role, role, first))
		} else {
			addresses[at] = i
			if first, taken := names[inst.Name]; taken {
				v.fault(key+"name", inst.Name, fmt.Sprintf("a name of its own, %s[%d] has the same", role, first))
			}
		}
		names[inst.Name] = i
		if !upstream.IsName(inst.Name) {
			v.fault(key+"name", inst.Name, "at most 128 printable ASCII characters without spaces")
		}
		validateInstance(v, role, i, &inst)
	}
}

func validateInstance(v *validation, role string, i int, inst *InstanceConfig) {
	key := instanceKey(role, i)
	for _, s := range InstanceSettings(role, i, inst) {
		if _, number := s.To.(*int); number {
			validateRow(v, s)
		}
	}
	if v.given(key + "kv_host") {
		validateKVHost(v, key+"kv_host", inst.KVHost)
	}
	if v.given(key + "kv_ttl") {
		validateKVTTL(v, key+"kv_ttl", inst.KVTTL)
	}
}

func validateKVHost(v *validation, key, host string) {
	if host != KVHostAuto && host != kvHostPin && !upstream.IsHost(host) {
		v.fault(key, host, "auto, pin, a host name or an IP address")
	}
}

func validateDiscovery(v *validation, c *Config) {
	d := &c.Discovery
	for _, role := range upstream.Roles() {
		for _, name := range d.Names(role.String()) {
			if _, err := discovery.ParseDNS(role, name); err != nil {
				v.fault("discovery."+role.String()+"_dns", name, "http://name:port, https://name:port, srv://_service._tcp.name or srvs://…")
			}
		}
	}
	for _, pattern := range c.Routing.PrefillerAllow {
		if _, err := discovery.ParsePattern(pattern); err != nil {
			v.fault("routing.prefiller_allow", pattern, "host:port, CIDR:port or *.domain:port, of one port or from-to")
		}
	}
	if d.Registration && c.Admin.Listen == AdminOff {
		v.fault("discovery.registration", "true", "admin.listen beside it")
	}
	if d.K8sLabelSelector == "" {
		return
	}
	if d.K8sPort == "" {
		v.fault("discovery.k8s_port", "", "a number or a name")
	}
	for _, label := range d.PrefillModelLabels {
		if slices.Contains(d.DecodeModelLabels, label) {
			v.fault("discovery.decode_model_labels", label, "values that prefill instances do not have")
		}
	}
}
