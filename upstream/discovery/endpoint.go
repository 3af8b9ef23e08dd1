package discovery

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"carryover/upstream"
)

// endpoint is host and port of a request in one canonical form: a name in lower case, or an address as netip writes it. No other
// bytes of a request may reach a URL, and no endpoint may pass under a second spelling.
type endpoint struct {
	host string
	addr netip.Addr // valid if host is an address
	port uint16
}

func (e endpoint) String() string { return net.JoinHostPort(e.host, strconv.Itoa(int(e.port))) }

var errNoEndpoint = errors.New("want host:port, the host a name or an IP address, an IPv6 address in brackets")

// parseEndpoint parses host:port. It accepts only the usual spelling, because a resolver or dialer may read more as an address than
// we do: getaddrinfo reads 0x7f.1 and 017700000001 as 127.0.0.1.
func parseEndpoint(text string) (endpoint, error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return endpoint{}, errNoEndpoint
	}
	port, ok := parsePort(text[i+1:])
	if !ok {
		return endpoint{}, errors.New("want a port from 1 to 65535")
	}
	e, err := parseHost(text[:i])
	if err != nil {
		return endpoint{}, err
	}
	e.port = port
	return e, e.check()
}

func parseHost(text string) (endpoint, error) {
	bare := text
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed {
		bare = strings.TrimSuffix(inner, "]")
	}
	if addr, err := netip.ParseAddr(bare); err == nil {
		if addr.Is4() && bare != text || addr.Is6() && "["+bare+"]" != text {
			return endpoint{}, errNoEndpoint
		}
		return endpoint{host: addr.String(), addr: addr}, nil
	}
	if host := lower(text); isDomain(host) {
		return endpoint{host: host}, nil
	}
	return endpoint{}, errNoEndpoint
}

// check refuses addresses that name no instance, or that are a second spelling of another one. The dialer takes 0.0.0.0 and :: for
// this machine, and ::ffff:10.0.0.1 for 10.0.0.1. Clouds serve their metadata at link-local addresses (169.254.169.254).
func (e endpoint) check() error {
	switch {
	case !e.addr.IsValid():
		return nil
	case e.addr.Zone() != "":
		return errors.New("want an address without zone")
	case e.addr.Is4In6():
		return fmt.Errorf("want an IPv4 address as such, %s", e.addr.Unmap())
	case !e.addr.IsGlobalUnicast() && !e.addr.IsLoopback():
		return errors.New("want the address of a machine, not an unspecified, link-local, multicast or broadcast one")
	}
	return nil
}

// isDomain accepts host names in lower case, without a dot at the end, that nothing takes for an IPv4 address: the last label is
// neither decimal nor hexadecimal (WHATWG URL, "ends in a number").
func isDomain(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || !upstream.IsHost(host) || host != lower(host) || strings.HasSuffix(host, ".") {
		return false
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	digits, hex := strings.CutPrefix(last, "0x")
	return !hex || strings.Trim(digits, "0123456789abcdef") != ""
}

// lower changes ASCII letters only: strings.ToLower turns the Kelvin sign into a k.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}

func parsePort(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n > 0 && text[0] != '0'
}

// Ranks returns the n data-parallel ranks behind one address as instances: name@0 to name@(n-1); for n = 0 the instance itself.
// vLLM's API server sends a request to the rank that X-data-parallel-rank names, and each rank has its own KV cache. The endpoint
// of KV events is rank 0's; the other ranks have the next ports (vllm/distributed/kv_events.py, offset_endpoint_port).
func Ranks(instance upstream.Instance, n int) []upstream.Instance {
	if n <= 0 {
		return []upstream.Instance{instance}
	}
	all := make([]upstream.Instance, n)
	for rank := range all {
		all[rank] = instance
		all[rank].Name = instance.Name + "@" + strconv.Itoa(rank)
		all[rank].Rank, all[rank].Ranked = rank, true
		all[rank].KVEvents = portBehind(instance.KVEvents, rank)
	}
	return all
}

func portBehind(endpoint string, more int) string {
	colon := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[colon+1:])
	if colon < 0 || err != nil {
		return endpoint
	}
	return endpoint[:colon+1] + strconv.Itoa(port+more)
}

// location is the address of an instance. Two instances of one role at one location are the same engine.
type location struct {
	role      upstream.Role
	authority string
	rank      int
	ranked    bool
}

func locationOf(i upstream.Instance) location {
	return location{i.Role, i.Authority(), i.Rank, i.Ranked}
}

func (p location) address() string {
	if p.ranked {
		return p.authority + "@" + strconv.Itoa(p.rank)
	}
	return p.authority
}

// IsPublisher accepts tcp://host:port with a host that others can connect to, as an endpoint of KV events.
func IsPublisher(text string) bool {
	rest, tcp := strings.CutPrefix(text, "tcp://")
	host, port, err := net.SplitHostPort(rest)
	if err != nil || !tcp || !upstream.IsHost(host) {
		return false
	}
	_, ok := parsePort(port)
	return ok
}
