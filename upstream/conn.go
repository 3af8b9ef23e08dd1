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

// slice is how often a wait for a leg's answer checks that the connection is still empty. An answer can seem older
// than its first byte by that much.
const slice = time.Second

// conn is a connection that reports to the leg it serves when it was found empty. It takes the time first and then
// tries to read, so that the reported time is never too late, however long the process stands still.
//
// Slices are made by read deadlines. net/http's Transport and crypto/tls set no read deadlines, and package http1 sets
// one only to end a wait; a deadline that a caller sets is kept.
type conn struct {
	net.Conn
	raw    syscall.RawConn
	look   func(fd uintptr) bool // the method value of try; to make one costs an allocation
	glance func(fd uintptr)      // the method value of peek
	now    func() time.Time

	leg atomic.Pointer[arrival] // the leg whose answer is read, nil if its age does not matter

	deadline sync.Mutex // guards limit, and the deadline of Conn
	limit    time.Time  // the caller's read deadline

	reading sync.Mutex // guards the rest; held during one read or try
	attempt attempt
	framed  *records // the TLS records that were read, nil without TLS; set before the first read
	quiet   bool
}

// attempt is the read that try tries, and its result.
type attempt struct {
	p   []byte
	n   int
	err error
}

// watch wraps a connection. It returns one without a file descriptor as it is: the answers on it count as being as old
// as their legs.
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

// watched returns the conn below outer, also through TLS; nil if there is none.
func watched(outer net.Conn) *conn {
	if s, ok := outer.(*secured); ok {
		return s.below
	}
	c, _ := outer.(*conn)
	return c
}

// serve makes the connection report to a leg from now on. A read may be waiting already, because net/http's Transport
// watches its idle connections.
func (c *conn) serve(leg *arrival) {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	c.leg.Store(leg)
	_ = c.setDeadline() // fails on a closed connection only, and the leg will notice that
}

// leave ends what serve began, unless another leg is served already.
func (c *conn) leave(leg *arrival) { c.leg.CompareAndSwap(leg, nil) }

// Read implements net.Conn, with the errors of package net.
func (c *conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for {
		c.attempt = attempt{p: p}
		err := c.raw.Read(c.look)
		c.attempt.p = nil
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !c.expired():
			if err = c.again(); err == nil {
				continue
			}
			return 0, err
		case err != nil:
			return 0, c.failure(err)
		case c.attempt.err != nil:
			return 0, c.failure(os.NewSyscallError("read", c.attempt.err))
		case c.attempt.n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return c.attempt.n, nil
	}
}

// try reads what is there. It reports whether there was anything, an end or an error included.
func (c *conn) try(fd uintptr) bool {
	at := c.now()
	n, err := syscall.Read(int(fd), c.attempt.p)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(int(fd), c.attempt.p)
	}
	leg := c.leg.Load() // loaded only now: bytes that were read belong to the leg that is served now
	switch {
	case errors.Is(err, syscall.EAGAIN):
		if leg != nil && !c.framed.inside() {
			leg.empty(at)
		}
		return false
	case err != nil:
		c.attempt.err = err
	default:
		if c.attempt.n = n; n > 0 && leg != nil {
			leg.seen()
		}
		if c.framed != nil {
			c.framed.read(c.attempt.p[:n])
		}
	}
	return true
}

// Quiet implements http1.Conn. It ignores deadlines, which an earlier slice may have left.
func (c *conn) Quiet() bool {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.quiet = false
	err := c.raw.Control(c.glance)
	return err == nil && c.quiet
}

// peek checks whether there is nothing to read, not even an end.
func (c *conn) peek(fd uintptr) {
	var first [1]byte
	_, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	c.quiet = errors.Is(err, syscall.EAGAIN)
}

// failure returns an error in the form in which package net returns errors of a read.
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

// setDeadline sets the next wake-up of a read: at the end of a slice if there is a leg, at the caller's deadline
// otherwise. It needs c.deadline.
func (c *conn) setDeadline() error {
	until := c.limit
	if c.leg.Load() != nil {
		if end := time.Now().Add(slice); until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return c.Conn.SetReadDeadline(until)
}
