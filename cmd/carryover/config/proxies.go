package config

import (
	"net/netip"
	"strings"
)

// parseNetwork reads an address or a network. It refuses a network with bits set behind its prefix.
func parseNetwork(text string) (_ netip.Prefix, ok bool) {
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" || addr.Is4In6() {
			return netip.Prefix{}, false
		}
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	network, err := netip.ParsePrefix(text)
	return network, err == nil && network == network.Masked() && !network.Addr().Is4In6()
}

// Trusted returns the networks of the trusted proxies, leaving out unreadable ones.
func (c *LimitsConfig) Trusted() (all []netip.Prefix) {
	for _, text := range c.TrustedProxies {
		if network, ok := parseNetwork(text); ok {
			all = append(all, network)
		}
	}
	return all
}

// PerAddress returns how many of the connections one address may have, 0 for all.
func (c *LimitsConfig) PerAddress(connections int) int {
	if c.AddressShare >= 1 {
		return 0
	}
	return max(1, int(c.AddressShare*float64(connections)))
}

func validateProxies(v *validation, l *LimitsConfig) {
	if l.AddressShare <= 0 {
		v.fault("limits.address_share", "0", "more than 0, 1 for all")
	}
	for _, text := range l.TrustedProxies {
		if _, ok := parseNetwork(text); !ok {
			v.fault("limits.trusted_proxies", text, "an IP address, or a network without bits behind its prefix, such as 10.0.0.0/8")
		}
	}
}
