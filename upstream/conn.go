package upstream

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// slice is how often a wait for a leg's answer looks whether the connection is still
// empty, and so how much older than its first byte an answer can seem.
const slice = time.Second

// conn is a connection that tells the leg it serves when it was found empty. It
// takes the time and only then tries to read, so that however long the process
// stands still, and wherever, the time is not too late.
//
// The slices are read deadlines. net/http sets none on the connections of its
// Transport, nor does crypto/tls, and package http1 only to end what waits; one that is
// set all the same holds.
type conn struct {
	net.Conn
	raw    syscall.RawConn
	look   func(fd uintptr) bool // try, made once: a method value costs an allocation
	glance func(fd uintptr)      // peek, likewise
	now    func() time.Time

	leg atomic.Pointer[arrival] // whose answer is read, nil if its age is of no interest

	deadline sync.Mutex // guards limit, and the deadline of Conn
	limit    time.Time  // the caller's read deadline

	reading sync.Mutex // guards the rest, which one read and try share
	p       []byte
	n       int
	err     error
	framed  *records // of TLS, nil without; set before the first read
	quiet   bool
}

// watch wraps a connection. One that has no file descriptor to read from is
// returned as it is: its answers are as old as their legs.
func watch(inner net.Conn) net.Conn {
	has, ok := inner.(syscall.Conn)
	if !ok {
		return inner
	}
	raw, err := has.SyscallConn()
	if err != nil {
		return inner
	}
	c := &conn{Conn: inner, raw: raw, now: time.Now}
	c.look, c.glance = c.try, c.peek
	return c
}

// watched returns the connection below TLS, if any, nil if it is not watched.
func watched(outer net.Conn) *conn {
	if s, ok := outer.(*secured); ok {
		return s.below
	}
	c, _ := outer.(*conn)
	return c
}

// serve reports to a leg from now on. A read may be waiting already: net/http's
// Transport watches its idle connections.
func (c *conn) serve(leg *arrival) {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	c.leg.Store(leg)
	_ = c.setDeadline() // fails on a closed connection only, which the leg will find out
}

// leave ends what serve began, unless another leg has come.
func (c *conn) leave(leg *arrival) { c.leg.CompareAndSwap(leg, nil) }

// Read implements net.Conn, with the errors of package net.
func (c *conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for {
		c.p, c.n, c.err = p, 0, nil
		err := c.raw.Read(c.look)
		c.p = nil
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !c.expired():
			if err = c.again(); err == nil {
				continue
			}
			return 0, err
		case err != nil:
			return 0, c.failure(err)
		case c.err != nil:
			return 0, c.failure(os.NewSyscallError("read", c.err))
		case c.n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return c.n, nil
	}
}

// try reads what is there and reports whether that was anything, an end or an
// error included.
func (c *conn) try(fd uintptr) bool {
	at := c.now()
	n, err := syscall.Read(int(fd), c.p)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(int(fd), c.p)
	}
	leg := c.leg.Load() // only now: bytes that were read belong to the leg that is here
	switch {
	case errors.Is(err, syscall.EAGAIN):
		if leg != nil && !c.framed.inside() {
			leg.empty(at)
		}
		return false
	case err != nil:
		c.err = err
	default:
		if c.n = n; n > 0 && leg != nil {
			leg.seen()
		}
		if c.framed != nil {
			c.framed.read(c.p[:n])
		}
	}
	return true
}

// Quiet implements http1.Conn. It looks past deadlines, which a slice may have left.
func (c *conn) Quiet() bool {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.quiet = false
	err := c.raw.Control(c.glance)
	return err == nil && c.quiet
}

// peek sees whether there is nothing to read, not even an end.
func (c *conn) peek(fd uintptr) {
	var first [1]byte
	_, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	c.quiet = errors.Is(err, syscall.EAGAIN)
}

// failure gives an error the form in which package net returns those of a read.
func (c *conn) failure(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return &net.OpError{Op: "read", Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// expired reports whether the caller's own deadline has passed.
func (c *conn) expired() bool {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	return !c.limit.IsZero() && !time.Now().Before(c.limit)
}

// again begins the next slice.
func (c *conn) again() error {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	return c.setDeadline()
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	c.limit = t
	return c.setDeadline()
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// setDeadline wakes the read at the end of a slice, where there is a leg, or at the
// caller's limit. It needs c.deadline.
func (c *conn) setDeadline() error {
	until := c.limit
	if c.leg.Load() != nil {
		if end := time.Now().Add(slice); until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return c.Conn.SetReadDeadline(until)
}
