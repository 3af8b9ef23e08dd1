package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"
)

// secured is TLS over a watched connection. crypto/tls buffers what it has read of the connection and not returned
// yet, up to a record of 16 kB, so an empty connection says nothing about bytes that are returned later. crypto/tls
// reads from the connection again only when it has returned all complete records.
type secured struct {
	*tls.Conn
	below *conn
}

// Read implements net.Conn.
func (s *secured) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if leg := s.below.leg.Load(); n > 0 && leg != nil {
		leg.seen()
	}
	return n, err
}

// Quiet implements http1.Conn. With an expired deadline, crypto/tls returns what it has buffered without reading from
// the connection.
func (s *secured) Quiet() bool {
	if s.below.framed.inside() || !s.below.Quiet() || s.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	var first [1]byte
	n, err := s.Conn.Read(first[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && s.SetReadDeadline(time.Time{}) == nil
}

// secure makes TLS connections over watched ones. limit bounds a handshake.
func secure(ctx context.Context, inner net.Conn, address string, config *tls.Config, limit time.Duration) (net.Conn, error) {
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
	below, ok := inner.(*conn)
	if ok {
		below.framed = &records{}
	}
	outer := tls.Client(inner, config)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := outer.HandshakeContext(ctx); err != nil {
		_ = inner.Close()
		return nil, err
	}
	if !ok {
		return outer, nil
	}
	return &secured{outer, below}, nil
}

// records follows the record boundaries of a TLS connection (RFC 8446, 5.1): a header of five bytes, whose last two
// are the length of the record.
type records struct {
	head [5]byte
	had  int // bytes of the header that were read
	left int // bytes of the record that are still to come
}

// read takes note of bytes that were read from the connection.
func (r *records) read(p []byte) {
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
func (r *records) inside() bool { return r != nil && (r.had > 0 || r.left > 0) }
