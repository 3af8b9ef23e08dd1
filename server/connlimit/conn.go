package connlimit

import (
	"net"
	"net/netip"
	"time"
)

// conn is one of the open connections. The listener's mutex guards every field except net.Conn.
type conn struct {
	net.Conn
	listener *Listener
	from     *address
	left     bool // it is no longer one of the open connections
	resting  bool // it is idle, or has sent nothing yet
	since    time.Time
	links    [2]struct{ before, behind *conn } // links in the lists of idle connections
}

// Close closes the connection, and makes room for another one.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.leaves(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// The lists that a connection is in while it is idle.
const (
	ofAll = iota
	ofAddress
)

// list is a list of idle connections; the one that has been idle for longest is first. The links are fields of the connections, because
// connections become idle and busy once for each request.
type list struct {
	of          int
	first, last *conn
}

func (l *list) push(c *conn) {
	c.links[l.of].before, c.links[l.of].behind = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.links[l.of].behind = c
	}
	l.last = c
}

func (l *list) remove(c *conn) {
	link := &c.links[l.of]
	if link.before == nil {
		l.first = link.behind
	} else {
		link.before.links[l.of].behind = link.behind
	}
	if link.behind == nil {
		l.last = link.before
	} else {
		link.behind.links[l.of].before = link.before
	}
	link.before, link.behind = nil, nil
}

// remoteOf returns the address that a connection comes from. The address is invalid if the connection has no network address.
func remoteOf(c net.Conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// keyOf returns the prefix under which an address is counted: an IPv6 address counts as its /64.
func keyOf(remote netip.Addr) netip.Prefix {
	bits := remote.BitLen()
	if remote.Is6() {
		bits = 64
	}
	prefix, _ := remote.Prefix(bits) // an invalid address has an invalid prefix
	return prefix
}
