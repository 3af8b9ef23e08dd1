package zmtp

import (
	"net"
	"slices"
	"sync"
)

// door counts the connections of a Server. Those that have introduced themselves have places of their own, so that
// silent ones can't take them, and of the silent ones the oldest gives way.
type door struct {
	most int

	mu     sync.Mutex // guards the rest
	silent []net.Conn // oldest first
	peers  int
}

// enter lets a connection in that has not introduced itself yet.
func (d *door) enter(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = append(d.silent, conn)
	if len(d.silent) > d.most {
		d.silent[0].Close() // its goroutine sees that
		d.silent = slices.Delete(d.silent, 0, 1)
	}
}

// admit gives a connection that has introduced itself a place, to be given back by leave. Without one it returns false.
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

// remove says whether a connection was among the silent ones, and takes it out. d.mu is held.
func (d *door) remove(conn net.Conn) bool {
	i := slices.Index(d.silent, conn)
	if i >= 0 {
		d.silent = slices.Delete(d.silent, i, i+1)
	}
	return i >= 0
}
