package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"
)

// secured is TLS over a connection.
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

// secure makes a TLS connection to host:port over another. limit bounds the handshake.
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

// records follows the record boundaries of a TLS connection (RFC 8446, 5.1): a header of five bytes, whose last two
// are the length of the record.
type records struct {
	*conn
	head [5]byte
	had  int // bytes of the header that were read
	left int // bytes of the record that are still to come
}

// Read implements net.Conn.
func (r *records) Read(p []byte) (int, error) {
	n, err := r.conn.Read(p)
	r.follow(p[:n])
	return n, err
}

// follow takes note of bytes that were read.
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

// inside reports whether a part of a record was read, of which crypto/tls can return nothing until the rest has
// arrived.
func (r *records) inside() bool { return r.had > 0 || r.left > 0 }
