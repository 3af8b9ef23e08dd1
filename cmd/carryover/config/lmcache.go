package config

import (
	"errors"

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
