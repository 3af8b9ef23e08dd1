package config

import (
	"errors"
	"strconv"

	"carryover/upstream/connector/lmcache"
)

// Receivers returns the receivers of the decode instances in the registry, by upstream.Instance.Authority; nil without a registry. The
// error joins all faults. Load checks them, so a configuration that it returned has no such error.
func (c *LMCacheConfig) Receivers() (map[string]lmcache.Receiver, error) {
	if c.DecoderRegistry == "" {
		return nil, nil
	}
	r := &registryReader{}
	r.read(c.DecoderRegistry)
	return r.receivers, errors.Join(r.errors()...)
}

// Otherwise returns the receiver of decode instances that the registry does not name; ok is false if they have none.
func (c *LMCacheConfig) Otherwise() (r lmcache.Receiver, ok bool) {
	r = lmcache.Receiver{Host: c.DecoderHost, InitPorts: portNumbers(c.InitPorts), AllocPorts: portNumbers(c.AllocPorts)}
	return r, len(r.InitPorts) > 0 && len(r.AllocPorts) > 0
}

// portNumbers reads ports that Load has checked.
func portNumbers(texts []string) []int {
	ports := make([]int, len(texts))
	for i, text := range texts {
		ports[i], _ = strconv.Atoi(text)
	}
	return ports
}
