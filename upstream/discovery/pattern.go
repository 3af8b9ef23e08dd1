package discovery

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Pattern permits endpoints: addresses by network, or names as text, both at a range of ports. A name is never resolved to
// match a network, and an address never matches a name, so DNS does not change which endpoints a pattern permits. But DNS
// decides where a permitted name leads: a pattern by name trusts the DNS zone, and everybody who may change it.
type Pattern struct {
	network  netip.Prefix // valid if the pattern is for addresses
	name     string       // or the one permitted name
	suffix   string       // or the end of the permitted names, which have at least one label before; it begins with a dot
	from, to uint16
}

// ParsePattern reads host:port or host:from-to. The host is an address (10.0.0.1, [fd00::1]), a network (10.0.0.0/8,
// [fd00::]/8), a name (prefill-0), or *.suffix for all names below it. The error says what would be accepted.
func ParsePattern(text string) (Pattern, error) {
	refused := func(why error) (Pattern, error) { return Pattern{}, fmt.Errorf("pattern %q: %w", text, why) }
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return refused(errNoEndpoint)
	}
	p, host := Pattern{}, text[:i]
	from, to, ranged := strings.Cut(text[i+1:], "-")
	if !ranged {
		to = from
	}
	var fromOK, toOK bool
	p.from, fromOK = parsePort(from)
	p.to, toOK = parsePort(to)
	if !fromOK || !toOK || p.from > p.to {
		return refused(errors.New("want a port or a range such as 8000-8100 behind the last colon"))
	}
	if suffix, wild := strings.CutPrefix(host, "*."); wild {
		if p.suffix = "." + lower(suffix); !isDomain(p.suffix[1:]) {
			return refused(errors.New("want *.name for the names below it"))
		}
		return p, nil
	}
	address, bits, network := strings.Cut(host, "/")
	e, err := parseHost(address)
	if err == nil && !network {
		err = e.check() // skipped for a network, because its first address may be no address of a machine
	}
	if err != nil {
		return refused(err)
	}
	switch {
	case network:
		p.network, err = netip.ParsePrefix(e.host + "/" + bits)
		if err != nil || p.network.Masked() != p.network || e.addr.Is4In6() {
			return refused(errors.New("want a network without bits behind its prefix, such as 10.0.0.0/8 or [fd00::]/8"))
		}
	case e.addr.IsValid():
		p.network = netip.PrefixFrom(e.addr, e.addr.BitLen())
	default:
		p.name = e.host
	}
	return p, nil
}

func (p Pattern) permits(e endpoint) bool {
	switch {
	case e.port < p.from || e.port > p.to:
		return false
	case e.addr.IsValid():
		return p.network.Contains(e.addr)
	case p.suffix != "":
		return strings.HasSuffix(e.host, p.suffix)
	}
	return p.name != "" && e.host == p.name
}
