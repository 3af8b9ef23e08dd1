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
	"carryover/upstream/discovery"
)

// ReusesKV reports whether prefill can read with this connector the KV that decode holds, so that there are tickets. With other
// connectors the next turn finds only the instances' own prefix caches.
func (c ConnectorConfig) ReusesKV() bool { return c.Name == ConnectorNIXL || c.Name == ConnectorMulti }

// HandsBack reports whether prefill can read all KV that decode holds into its prefix cache by a leg of the proxy's own. MultiConnector was
// never measured: its other children may take that leg for a request of their own.
func (c ConnectorConfig) HandsBack() bool { return c.Name == ConnectorNIXL }

// Registers reports whether engines with this connector announce their address over ZMQ.
func (c ConnectorConfig) Registers() bool {
	return c.Name == ConnectorMoRIIO || c.Name == ConnectorP2PNCCL
}

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
	case key == "discovery.zmq_listen", key == "discovery.zmq_allow":
		return []string{ConnectorMoRIIO, ConnectorP2PNCCL}
	case strings.HasSuffix(key, "].bootstrap_port"):
		return []string{ConnectorMooncake}
	case strings.HasSuffix(key, "].notifications"):
		return []string{ConnectorLMCache}
	}
	return nil
}

func (l *Loader) validateConnector() {
	c := &l.cfg
	if !slices.Contains(Connectors(), c.Connector.Name) {
		return // validateRow has reported it
	}
	l.refuseOfOthers()
	if c.Connector.Name == ConnectorLMCache {
		l.validateLMCache()
	}
	if at := c.Discovery.ZMQListen; at != "" && !isListenAddress(at) {
		l.fault("discovery.zmq_listen", at, wantListenAddress)
	} else if at == "" && c.Connector.Registers() {
		l.fault("connector.name", c.Connector.Name, "discovery.zmq_listen beside it: request ids are made of what engines register there")
	}
	l.validateKVEvents()
}

// refuseOfOthers reports settings of connectors that are not chosen, because they would have no effect, and instance settings that no
// chosen connector reads.
func (l *Loader) refuseOfOthers() {
	defaults := Default()
	usual := Settings(&defaults)
	for i, s := range l.rows {
		l.refuseOfOther(s, reflect.DeepEqual(reflect.ValueOf(s.To).Elem().Interface(), reflect.ValueOf(usual[i].To).Elem().Interface()))
	}
	for _, role := range []string{RolePrefill, RoleDecode} {
		list := *l.cfg.Instances(role)
		for i := range list {
			for _, s := range InstanceSettings(role, i, &list[i]) {
				if readBy(s.Key) != nil {
					l.validateRow(s)
				}
				l.refuseOfOther(s, reflect.ValueOf(s.To).Elem().IsZero())
			}
		}
	}
}

func (l *Loader) refuseOfOther(s Setting, unset bool) {
	if by := readBy(s.Key); !unset && by != nil && !slices.Contains(by, l.cfg.Connector.Name) {
		value := FormatValue(s.To)
		if len(value) > 80 {
			value = value[:80] + "…"
		}
		l.fault(s.Key, value, "connector.name "+strings.Join(by, " or ")+" beside it")
	}
}

func (l *Loader) validateLMCache() {
	c := &l.cfg.LMCache
	if !isListenAddress(c.Listen) {
		l.fault("lmcache.listen", c.Listen, wantListenAddress)
	}
	if c.DecoderHost != "" && !upstream.IsHost(c.DecoderHost) {
		l.fault("lmcache.decoder_host", c.DecoderHost, "a host name or an IP address")
	}
	faults := len(l.faults)
	l.validatePorts("lmcache.init_ports", c.InitPorts)
	l.validatePorts("lmcache.alloc_ports", c.AllocPorts)
	switch {
	case len(c.InitPorts) != len(c.AllocPorts):
		l.fault("lmcache.alloc_ports", strings.Join(c.AllocPorts, ","), fmt.Sprintf("as many ports as lmcache.init_ports, %d", len(c.InitPorts)))
	case len(c.InitPorts) == 0 && c.DecoderHost != "":
		l.fault("lmcache.decoder_host", c.DecoderHost, "lmcache.init_ports and lmcache.alloc_ports beside it")
	case c.DecoderHost != "" && l.cfg.Finds(RoleDecode):
		l.fault("lmcache.decoder_host", c.DecoderHost, "none where decode instances are found: all of them would share one receiver")
	case len(c.InitPorts) == 0 && c.DecoderRegistry == "":
		l.fault("connector.name", ConnectorLMCache, "lmcache.decoder_registry, or lmcache.init_ports and lmcache.alloc_ports, beside it: where decode receives")
	}
	r := &registryReader{}
	if c.DecoderRegistry != "" {
		r.read(c.DecoderRegistry)
	}
	for _, f := range r.faults {
		f.Origin = l.origin(f.Key)
		l.faults = append(l.faults, f)
	}
	if len(l.faults) == faults {
		l.validateReceivers()
	}
}

func (l *Loader) validatePorts(key string, ports []string) {
	for _, port := range ports {
		if !hostport.IsPort(port) {
			l.fault(key, port, "ports from 1 to 65535")
		}
	}
}

// validateReceivers keeps two decode instances from sharing a receiver: the KV of a turn could go to the instance that does not get the
// turn, and would still be announced.
func (l *Loader) validateReceivers() {
	named, _ := l.cfg.LMCache.Receivers()
	usual, ok := l.cfg.LMCache.Otherwise()
	taken := map[string]int{}
	for i, inst := range l.cfg.Decode {
		u, readable := parseInstanceURL(inst.URL)
		if !readable {
			continue
		}
		at := upstream.Instance{BaseURL: u.String()}
		to, known := named[at.Authority()]
		if !known && !ok {
			l.fault(instanceKey(RoleDecode, i)+"url", inst.URL, "an entry in lmcache.decoder_registry, or lmcache.init_ports and lmcache.alloc_ports")
			continue
		}
		if !known {
			to = usual
		}
		if to.Host == "" {
			to.Host = at.Host()
		}
		for _, port := range to.InitPorts {
			address := net.JoinHostPort(to.Host, strconv.Itoa(port))
			if first, shared := taken[address]; shared && first != i {
				l.fault(instanceKey(RoleDecode, i)+"url", inst.URL, fmt.Sprintf("a receiver of its own (lmcache.decoder_registry), decode[%d] is reached at %s too", first, address))
				break
			}
			taken[address] = i
		}
	}
}

func (l *Loader) validateKVEvents() {
	c := &l.cfg
	named := c.Discovery.File != "" // instances of the file may name their own
	for _, role := range []string{RolePrefill, RoleDecode} {
		for i, inst := range *c.Instances(role) {
			if inst.KVEvents == "" {
				continue
			}
			named = true
			if !discovery.IsPublisher(inst.KVEvents) {
				l.fault(instanceKey(role, i)+"kv_events", inst.KVEvents, "tcp://host:port")
			}
		}
	}
	if c.KVEvents.Port > 0 || named {
		return
	}
	if c.KVEvents.ReplayPort > 0 {
		l.fault("kv_events.replay_port", strconv.Itoa(c.KVEvents.ReplayPort), "kv_events.port beside it")
	}
	if c.KVEvents.Topic != "" {
		l.fault("kv_events.topic", c.KVEvents.Topic, "kv_events.port beside it")
	}
}

const wantListenAddress = "host:port, with a port from 1 to 65535 that engines are told"

// isListenAddress accepts the address of a listener that others are told about. An empty host, as in ":7500", means all addresses.
func isListenAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && (host == "" || upstream.IsHost(host)) && hostport.IsPort(port)
}
