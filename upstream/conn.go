package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// conn is a connection to an engine. connections has it until it is closed.
type conn struct {
	*net.TCPConn
	raw syscall.RawConn
	age age // of the bytes that its leg reads

	all     *connections
	address string
	number  uint64
}

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

// Read implements net.Conn. It takes the time before it reads, so that bytes never seem younger than they are.
func (c *conn) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := c.TCPConn.Read(p)
	c.age.read(began, n < len(p) && err == nil)
	return n, err
}

func (c *conn) Quiet() bool {
	unread, ended := c.look()
	return !unread && !ended
}

// look tells whether there are bytes or an end to read, and whether the peer has ended, even behind unread bytes.
// It does not wait.
func (c *conn) look() (unread, ended bool) {
	err := c.raw.Control(func(fd uintptr) { unread, ended = look(int(fd)) })
	return unread, ended || err != nil
}

func (c *conn) Close() error {
	c.all.remove(c)
	return c.TCPConn.Close()
}

type secured struct {
	*tls.Conn
	below *records
}

// Quiet implements http1.Conn. With an expired deadline, crypto/tls returns what it holds without reading from the
// connection.
func (s *secured) Quiet() bool {
	if s.below.inside() || !s.below.Quiet() || s.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	var first [1]byte
	n, err := s.Read(first[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && s.SetReadDeadline(time.Time{}) == nil
}

func secure(ctx context.Context, inner *conn, address string, config *tls.Config, limit time.Duration) (*secured, error) {
	if config = config.Clone(); config == nil {
		config = &tls.Config{}
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		config.ServerName = host
	}
	below := &records{conn: inner}
	outer := tls.Client(below, config)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := outer.HandshakeContext(ctx); err != nil {
		_ = inner.Close()
		return nil, err
	}
	return &secured{outer, below}, nil
}

// records follows the record boundaries of TLS (RFC 8446, 5.1): a header of five bytes, whose last two are the
// record's length.
type records struct {
	*conn
	head [5]byte
	had  int // bytes of the header that were read
	left int // bytes of the record that have not been read
}

func (r *records) Read(p []byte) (int, error) {
	n, err := r.conn.Read(p)
	r.follow(p[:n])
	return n, err
}

func (r *records) follow(p []byte) {
	for len(p) > 0 {
		if r.left == 0 {
			n := copy(r.head[r.had:], p)
			r.had, p = r.had+n, p[n:]
			if r.had == len(r.head) {
				r.had, r.left = 0, int(r.head[3])<<8|int(r.head[4])
			}
			continue
		}
		n := min(r.left, len(p))
		r.left, p = r.left-n, p[n:]
	}
}

// inside reports whether a record was read in part. crypto/tls returns nothing of it until the rest has arrived.
func (r *records) inside() bool { return r.had > 0 || r.left > 0 }
