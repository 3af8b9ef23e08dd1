package zmtp

import (
	"net"
	"slices"
	"sync"
)

// door counts the connections of a Server. Peers that have introduced themselves have places of their own, so that silent
// connections can't take them. If there are too many silent connections, the oldest is closed.
type door struct {
	most int

	mu     sync.Mutex // guards the rest
	silent []net.Conn // oldest first
	peers  int
}

// enter records a connection that has not introduced itself yet.
func (d *door) enter(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = append(d.silent, conn)
	if len(d.silent) > d.most {
		d.silent[0].Close() // its goroutine notices
		d.silent = slices.Delete(d.silent, 0, 1)
	}
}

// admit gives a place to a connection that has introduced itself, until leave. If no place is free, it returns false.
func (d *door) admit(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.remove(conn) || d.peers == d.most {
		return false
	}
	d.peers++
	return true
}

// turnAway forgets a connection that has not introduced itself.
func (d *door) turnAway(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(conn)
}

// leave gives back a place.
func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peers--
}

// remove takes a connection out of the silent ones and reports whether it was among them. d.mu is held.
func (d *door) remove(conn net.Conn) bool {
	i := slices.Index(d.silent, conn)
	if i >= 0 {
		d.silent = slices.Delete(d.silent, i, i+1)
	}
	return i >= 0
}
