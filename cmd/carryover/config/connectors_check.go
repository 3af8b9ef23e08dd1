package config

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"carryover/cmd/carryover/config/hostport"
	"carryover/upstream"
	"carryover/upstream/connector/lmcache"
	"carryover/upstream/discovery"
)

// ReusesKV reports whether prefill can read with this connector the KV that decode holds, so that there are tickets. With other
// connectors the next turn finds only the instances' own prefix caches.
func (c ConnectorConfig) ReusesKV() bool { return c.Name == ConnectorNIXL || c.Name == ConnectorMulti }

// HandsBack reports whether prefill can read all KV that decode holds into its prefix cache by a leg of the proxy's own. MultiConnector was
// never measured: its other children may take that leg for a request of their own.
func (c ConnectorConfig) HandsBack() bool { return c.Name == ConnectorNIXL }

// readBy returns the connectors that read a setting, nil for all.
func readBy(key string) []string {
	section, _, _ := strings.Cut(key, ".")
	switch {
	case key == "connector.orchestrated_form":
		return []string{ConnectorOrchestrated}
	case section == "mooncake":
		return []string{ConnectorMooncake}
	case section == "lmcache":
		return []string{ConnectorLMCache}
	case strings.HasSuffix(key, "].bootstrap_port"):
		return []string{ConnectorMooncake}
	}
	return nil
}

func validateConnector(v *validation, c *Config, rows []Setting) {
	if !slices.Contains(Connectors(), c.Connector.Name) {
		return // validateRow has reported it
	}
	refuseOfOthers(v, c, rows)
	if c.Connector.Name == ConnectorLMCache {
		validateLMCache(v, c)
	}
	validateKVEvents(v, c)
}

// refuseOfOthers reports settings of connectors that are not chosen, because they would have no effect, and instance settings that no
// chosen connector reads.
func refuseOfOthers(v *validation, c *Config, rows []Setting) {
	defaults := Default()
	usual := Settings(&defaults)
	for i, s := range rows {
		refuseOfOther(v, s, reflect.DeepEqual(reflect.ValueOf(s.To).Elem().Interface(), reflect.ValueOf(usual[i].To).Elem().Interface()), c.Connector.Name)
	}
	for _, role := range []string{RolePrefill, RoleDecode} {
		list := *c.Instances(role)
		for i := range list {
			for _, s := range InstanceSettings(role, i, &list[i]) {
				if readBy(s.Key) != nil {
					validateRow(v, s)
				}
				refuseOfOther(v, s, reflect.ValueOf(s.To).Elem().IsZero(), c.Connector.Name)
			}
		}
	}
}

func refuseOfOther(v *validation, s Setting, unset bool, connector string) {
	if by := readBy(s.Key); !unset && by != nil && !slices.Contains(by, connector) {
		value := FormatValue(s.To)
		if len(value) > 80 {
			value = value[:80] + "…"
		}
		v.fault(s.Key, value, "connector.name "+strings.Join(by, " or ")+" beside it")
	}
}

func validateLMCache(v *validation, c *Config) {
	l := &c.LMCache
	if !isListenAddress(l.Listen) {
		v.fault("lmcache.listen", l.Listen, wantListenAddress)
	}
	if l.DecoderRegistry == "" {
		v.fault("connector.name", ConnectorLMCache, "lmcache.decoder_registry beside it: where decode receives")
		return
	}
	r := &registryReader{}
	r.read(l.DecoderRegistry)
	for _, f := range r.faults {
		f.Origin = v.origin(f.Key)
		v.faults = append(v.faults, f)
	}
	if len(r.faults) == 0 {
		validateReceivers(v, c, r.receivers)
	}
}

// validateReceivers keeps two decode instances from sharing a receiver: the KV of a turn could go to the instance that does not get the
// turn, and would still be announced.
func validateReceivers(v *validation, c *Config, receivers map[string]lmcache.Receiver) {
	taken := map[string]int{}
	for i, inst := range c.Decode {
		u, readable := parseInstanceURL(inst.URL)
		if !readable {
			continue
		}
		at := upstream.Instance{BaseURL: u.String()}
		to, known := receivers[at.Authority()]
		if !known {
			v.fault(instanceKey(RoleDecode, i)+"url", inst.URL, "an entry in lmcache.decoder_registry")
			continue
		}
		for _, port := range to.InitPorts {
			address := net.JoinHostPort(to.Host, strconv.Itoa(port))
			if first, shared := taken[address]; shared && first != i {
				v.fault(instanceKey(RoleDecode, i)+"url", inst.URL, fmt.Sprintf("a receiver of its own (lmcache.decoder_registry), decode[%d] is reached at %s too", first, address))
				break
			}
			taken[address] = i
		}
	}
}

func validateKVEvents(v *validation, c *Config) {
	named := c.Discovery.File != "" // instances of the file may name their own
	for _, role := range []string{RolePrefill, RoleDecode} {
		for i, inst := range *c.Instances(role) {
			if inst.KVEvents == "" {
				continue
			}
			named = true
			if !discovery.IsPublisher(inst.KVEvents) {
				v.fault(instanceKey(role, i)+"kv_events", inst.KVEvents, "tcp://host:port")
			}
		}
	}
	if c.KVEvents.Port > 0 || named {
		return
	}
	if c.KVEvents.ReplayPort > 0 {
		v.fault("kv_events.replay_port", strconv.Itoa(c.KVEvents.ReplayPort), "kv_events.port beside it")
	}
}

const wantListenAddress = "host:port, with a port from 1 to 65535 that engines are told"

// isListenAddress accepts the address of a listener that others are told about. An empty host, as in ":7500", means all addresses.
func isListenAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && (host == "" || upstream.IsHost(host)) && hostport.IsPort(port)
}
