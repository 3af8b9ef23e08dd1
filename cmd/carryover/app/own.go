package app

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// ownLookup bounds the look-up of a name that may be this program's.
const ownLookup = 2 * time.Second

// ownAddresses are the addresses of this program's listeners. An instance there would be the program itself, and turns would run in a circle.
type ownAddresses struct {
	mu  sync.Mutex // guards all
	all []netip.AddrPort
}

// add tells of a listener.
func (o *ownAddresses) add(listener net.Addr) {
	tcp, ok := listener.(*net.TCPAddr)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, tcp.AddrPort())
}

// has reports whether host:port is one of them. It looks names up; a name that is not found is none of them.
func (o *ownAddresses) has(ctx context.Context, authority string) bool {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || !o.hasPort(uint16(n)) {
		return false
	}
	addrs := []netip.Addr{}
	if addr, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, addr)
	} else {
		ctx, cancel := context.WithTimeout(ctx, ownLookup)
		defer cancel()
		addrs, _ = net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	for _, addr := range addrs {
		if o.listens(addr.Unmap(), uint16(n)) {
			return true
		}
	}
	return false
}

func (o *ownAddresses) hasPort(port uint16) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.all {
		if at.Port() == port {
			return true
		}
	}
	return false
}

// listens reports whether a connection to an address would reach this program. The dialer takes an unspecified address for this machine's.
func (o *ownAddresses) listens(addr netip.Addr, port uint16) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.all {
		mine := at.Addr().Unmap()
		switch {
		case at.Port() != port:
		case mine == addr, addr.IsUnspecified() && (mine.IsLoopback() || mine.IsUnspecified()):
			return true
		case mine.IsUnspecified() && (addr.IsLoopback() || isInterface(addr)):
			return true
		}
	}
	return false
}

// isInterface reports whether an address is one of this machine.
func isInterface(addr netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range all {
		if network, ok := a.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(network.IP); ok && own.Unmap() == addr.WithZone("") {
				return true
			}
		}
	}
	return false
}
