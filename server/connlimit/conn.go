package connlimit

import (
	"net"
	"net/netip"
	"time"
)

// conn is one of the open connections. What is beside net.Conn is guarded by its listener.
type conn struct {
	net.Conn
	listener *Listener
	from     *address
	left     bool // it is not one of the open ones any more
	resting  bool // it is idle, or has sent nothing yet
	since    time.Time
	links    [2]struct{ before, behind *conn } // in the lists of idle ones
}

// Close ends the connection, and makes room for another one.
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

// list has idle connections, the one that has been idle for longest first. Its links are the connections' own: they become idle, and busy,
// once for each request.
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

// remoteOf is the address that a connection comes from, which is not valid where that is none of the network.
func remoteOf(c net.Conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// keyOf is what an address counts as: an IPv6 one as its /64.
func keyOf(remote netip.Addr) netip.Prefix {
	bits := remote.BitLen()
	if remote.Is6() {
		bits = 64
	}
	prefix, _ := remote.Prefix(bits) // that of an address which is not valid is not, either
	return prefix
}
