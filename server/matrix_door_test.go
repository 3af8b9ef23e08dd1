package server_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/dnstest"
)

// names is what names resolve to in these tests.
var names = dnstest.Install()

// door is a network between the proxy and an engine: it refuses connections, swallows them, or breaks those that it has let
// through. Its address stays the same.
type door struct {
	t       *testing.T
	address string
	name    string         // that resolves to its address, "" for none
	handler sync.WaitGroup // one for each goroutine, which end with their connections

	mu           sync.Mutex // guards the rest
	listener     *net.TCPListener
	to           string
	unresponsive bool // connections are accepted and nothing is read of them
	passages     map[*passage]struct{}
	mutes        []net.Conn
}

// passage is a connection that a door has let through.
type passage struct {
	proxy, side net.Conn       // to the proxy and to the engine
	outcome     func(*passage) // of the next bytes of the proxy, nil lets them through
	frozen      bool           // nothing gets through any more, and neither side is told
}

// doors numbers the addresses of doors: one that is shut keeps its own, which no other socket is given meanwhile.
var doors atomic.Uint32

func newDoor(t *testing.T, port, to string) *door {
	t.Helper()
	n := doors.Add(1)
	d := &door{t: t, to: to, passages: map[*passage]struct{}{}}
	d.address = fmt.Sprintf("127.%d.%d.%d:%s", 16+os.Getpid()%200, n>>8&0xff, n&0xff, port)
	d.open()
	t.Cleanup(func() { d.shut(); d.handler.Wait() })
	return d
}

// fitDoors puts a door before each engine, whose instance is among the last.
func fitDoors(t *testing.T, engines []*engine, instances []upstream.Instance, named bool) {
	t.Helper()
	first := len(instances) - len(engines)
	for i, e := range engines {
		e.door = newDoor(t, "0", e.server.Listener.Addr().String())
		authority := e.door.address
		if named {
			host, port, _ := net.SplitHostPort(authority)
			e.door.name = "door-" + strings.ReplaceAll(host, ".", "-") + ".test"
			names.Set(e.door.name, dnstest.At(host))
			authority = net.JoinHostPort(e.door.name, port)
		}
		instances[first+i].BaseURL = "http://" + authority
	}
}

// elsewhere is a door to the same engine at the same port of another address.
func (d *door) elsewhere() *door {
	d.t.Helper()
	_, port, _ := net.SplitHostPort(d.address)
	return newDoor(d.t, port, d.to)
}

// host is the door's address without its port.
func (d *door) host() string {
	host, _, _ := net.SplitHostPort(d.address)
	return host
}

// open lets connections through from now on.
func (d *door) open() {
	d.t.Helper()
	listener, err := net.Listen("tcp4", d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.address, d.listener, d.unresponsive = listener.Addr().String(), listener.(*net.TCPListener), false
	d.handler.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.admit(conn)
		}
	})
}

func (d *door) admit(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.listener == nil: // shut meanwhile
		_ = conn.Close()
		return
	case d.unresponsive:
		d.mutes = append(d.mutes, conn)
		return
	}
	side, err := net.Dial("tcp4", d.to)
	if err != nil {
		_ = conn.Close()
		return
	}
	p := &passage{proxy: conn, side: side}
	d.passages[p] = struct{}{}
	d.handler.Go(func() { d.pump(p, side, conn) })
	d.handler.Go(func() { d.pump(p, conn, side) })
}

// pump copies in one direction until one side ends.
func (d *door) pump(p *passage, to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		d.mu.Lock()
		outcome, frozen := p.outcome, p.frozen
		d.mu.Unlock()
		switch {
		case n > 0 && outcome != nil && from == p.proxy:
			outcome(p)
			err = net.ErrClosed
		case n > 0 && !frozen:
			_, _ = to.Write(buf[:n]) // a side that has gone ends the other pump
		}
		if err != nil {
			break
		}
	}
	_, _ = p.proxy.Close(), p.side.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.passages, p)
}

// fin closes the connection in order, reset breaks it.
func fin(p *passage) { _ = p.proxy.Close() }

func reset(p *passage) {
	_ = p.proxy.(*net.TCPConn).SetLinger(0)
	_ = p.proxy.Close()
}

// shut refuses connections and breaks those that are open.
func (d *door) shut() {
	d.mu.Lock()
	if d.listener != nil {
		_ = d.listener.Close()
		d.listener = nil
	}
	open := d.mutes
	d.mutes = nil
	for p := range d.passages {
		open = append(open, p.proxy, p.side)
	}
	d.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// leave refuses connections and keeps those that are open.
func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.listener.Close()
	d.listener = nil
}

// hole swallows connections: its queue is full, so that the kernel answers no more of them.
func (d *door) hole() {
	d.t.Helper()
	d.shut()
	listener, err := net.Listen("tcp4", d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		d.t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) })
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listener = listener.(*net.TCPListener)
	for {
		conn, err := net.DialTimeout("tcp4", d.address, 50*time.Millisecond)
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			return
		} else if err != nil {
			d.t.Fatal(err)
		}
		d.mutes = append(d.mutes, conn)
	}
}

// silence accepts connections and never reads of them; those that are open freeze.
func (d *door) silence() {
	d.mu.Lock()
	d.unresponsive = true
	d.mu.Unlock()
	d.freeze()
}

// freeze takes both ends of the open connections off the network.
func (d *door) freeze() {
	d.each(func(p *passage) { p.frozen = true })
}

// empty reports whether no connection is open.
func (d *door) empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.passages) == 0
}

func (d *door) each(do func(*passage)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.passages {
		do(p)
	}
}

// again is the door as it was at first.
func (d *door) again() {
	d.t.Helper()
	d.shut()
	d.open()
}
