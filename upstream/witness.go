package upstream

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
)

// Witness is what shows that the process which wrote an answer still runs: a connection to its address that was open
// before the answer was written and that its peer has not ended since. A process that ends closes its connections, so
// without such a connection another process may answer by now, under the same address and engine id. The zero value
// never stands.
type Witness struct {
	all     *connections
	address string
	number  uint64
}

// Stands reports whether there is such a connection. It does not wait; it takes one system call for the connection that
// it finds, a microsecond.
func (w Witness) Stands() bool { return w.all != nil && w.all.stands(w.address, w.number) }

// StandsBy is Stands behind a Check. If the connection that Check has found open is such a connection, no system call is needed.
func (w Witness) StandsBy(idle Idle) bool {
	o := idle.open
	return o != nil && o.all == w.all && o.address == w.address && o.number <= w.number || w.Stands()
}

// Idle is an idle connection that [Client.Check] has found open. The zero value is none.
type Idle struct{ open *openConn }

// idleOf returns the open connection below one of a transport, none if it has no file descriptor.
func idleOf(conn net.Conn) Idle {
	below := watched(conn)
	if below == nil {
		return Idle{}
	}
	open, _ := below.Conn.(*openConn)
	return Idle{open}
}

// FetchWitnessed is Fetch that also returns the witness of the answer's process.
func (c *Client) FetchWitnessed(
	ctx context.Context, instance *Instance, path, authorization string, most int64,
) (status int, body []byte, witness Witness, err error) {
	address := instance.Authority()
	q := c.request(http.MethodGet, instance.BaseURL, path, authorization)
	q.Connected = func(net.Conn) { witness = c.open.now(address) }
	status, body, err = c.ask(ctx, q, most, nil)
	return status, body, witness, err
}

// connections are the open connections of a client, by the address that was dialled.
type connections struct {
	mu     sync.Mutex // guards the rest
	opened uint64     // the number of the connection that was opened last
	at     map[string]*list.List
}

func newConnections() *connections { return &connections{at: map[string]*list.List{}} }

// now returns the witness of an answer that is not written yet.
func (c *connections) now(address string) Witness {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Witness{c, address, c.opened}
}

// add makes a new connection one of the open ones until it is closed. A connection without a file descriptor is never a
// witness and is returned as it is.
func (c *connections) add(address string, inner net.Conn) net.Conn {
	has, ok := inner.(syscall.Conn)
	if !ok {
		return inner
	}
	raw, err := has.SyscallConn()
	if err != nil {
		return inner
	}
	open := &openConn{Conn: inner, raw: raw, all: c, address: address}
	open.examine = func(fd uintptr) {
		if peerEnded(int(fd)) {
			open.ended.Store(true)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	open.number = c.opened
	if c.at[address] == nil {
		c.at[address] = list.New()
	}
	open.place = c.at[address].PushBack(open)
	return open
}

// remove takes a connection out. Its place is nil afterwards.
func (c *connections) remove(open *openConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if open.place == nil {
		return
	}
	of := c.at[open.address]
	of.Remove(open.place)
	open.place = nil
	if of.Len() == 0 {
		delete(c.at, open.address)
	}
}

// stands reports whether an open connection with that number or a lower one has not been ended by its peer. The oldest
// is asked first: it serves the longest stream, or will be the next one to be found ended.
func (c *connections) stands(address string, number uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.at[address]
	if of == nil {
		return false
	}
	for place := of.Front(); place != nil; place = place.Next() {
		open := place.Value.(*openConn)
		if open.number > number {
			return false
		}
		if !open.hasEnded() {
			return true
		}
	}
	return false
}

// openConn is an open connection.
type openConn struct {
	net.Conn
	raw     syscall.RawConn
	all     *connections
	address string
	number  uint64
	place   *list.Element    // among the open connections of its address; all.mu guards it
	ended   atomic.Bool      // the peer was found to have ended it
	examine func(fd uintptr) // finds out whether the peer has ended it; made once, because each turn asks
}

// SyscallConn implements syscall.Conn.
func (o *openConn) SyscallConn() (syscall.RawConn, error) { return o.raw, nil }

// Close implements net.Conn.
func (o *openConn) Close() error {
	o.all.remove(o)
	return o.Conn.Close()
}

// hasEnded reports whether the peer has ended the connection, even if bytes that came before are still to be read.
func (o *openConn) hasEnded() bool {
	if o.ended.Load() {
		return true
	}
	if err := o.raw.Control(o.examine); err != nil {
		o.ended.Store(true)
	}
	return o.ended.Load()
}
