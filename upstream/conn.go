package upstream

import (
	"context"
	"net"
	"syscall"
	"time"
)

// conn is a connection to an engine. It is among the open ones until it is closed.
type conn struct {
	*net.TCPConn
	raw syscall.RawConn
	age age // of what the leg reads that it serves

	all     *connections
	address string
	number  uint64
}

// dial connects to host:port. The connection is among the open ones until it is closed.
func (c *connections) dial(ctx context.Context, address string, limit time.Duration) (*conn, error) {
	dialer := &net.Dialer{
		Timeout:         limit,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3},
		Control:         boundUnacked,
	}
	dialled, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp := dialled.(*net.TCPConn)
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	opened := &conn{TCPConn: tcp, raw: raw, all: c, address: address}
	c.add(opened)
	return opened, nil
}

// Read implements net.Conn. It takes the time first, so that what it returns is never taken for younger than it is.
func (c *conn) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := c.TCPConn.Read(p)
	c.age.read(began, n < len(p) && err == nil)
	return n, err
}

// Quiet implements http1.Conn.
func (c *conn) Quiet() bool {
	unread, ended := c.look()
	return !unread && !ended
}

// look reports whether bytes or an end are there to be read, and whether the peer has ended the connection, even if
// bytes that came before are still to be read. It does not wait.
func (c *conn) look() (unread, ended bool) {
	err := c.raw.Control(func(fd uintptr) { unread, ended = look(int(fd)) })
	return unread, ended || err != nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.all.remove(c)
	return c.TCPConn.Close()
}
