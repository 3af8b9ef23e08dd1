package main

import (
	"errors"
	"strconv"

	"carryover/upstream/connector/lmcache"
)

// receivers are those of the decode instances that the registry names, by upstream.Instance.Authority; nil without a registry. The
// error has all faults; loadConfig has found them, so that there is none in a configuration that it returns.
func (c *LMCacheConfig) receivers() (map[string]lmcache.Receiver, error) {
	if c.DecoderRegistry == "" {
		return nil, nil
	}
	r := &registryReader{}
	r.read(c.DecoderRegistry)
	return r.receivers, errors.Join(r.errors()...)
}

// otherwise is the receiver of decode instances that the registry does not name; ok is false if they have none.
func (c *LMCacheConfig) otherwise() (r lmcache.Receiver, ok bool) {
	r = lmcache.Receiver{Host: c.DecoderHost, InitPorts: portNumbers(c.InitPorts), AllocPorts: portNumbers(c.AllocPorts)}
	return r, len(r.InitPorts) > 0 && len(r.AllocPorts) > 0
}

// portNumbers reads ports that loadConfig has checked.
func portNumbers(texts []string) []int {
	ports := make([]int, len(texts))
	for i, text := range texts {
		ports[i], _ = strconv.Atoi(text)
	}
	return ports
}
