package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"carryover/upstream/http1"
)

// ownTransport is the transport that uses package http1.
type ownTransport struct {
	client *http1.Client
	tls    *tls.Config // nil for the system's certificates
}

func newOwnTransport(limit time.Duration, dial dialler, broke func(base string)) *ownTransport {
	t := &ownTransport{}
	t.client = http1.New(http1.Config{
		Dial: func(ctx context.Context, scheme, address string) (http1.Conn, error) {
			c, err := dial(ctx, "tcp", address)
			if err == nil && scheme == "https" {
				c, err = secure(ctx, c, address, t.tls, limit)
			}
			if err != nil {
				return nil, err
			}
			if quiet, ok := c.(http1.Conn); ok {
				return quiet, nil
			}
			return unknown{c}, nil
		},
		IdlePerHost: idlePerHost,
		IdleFor:     idleFor,
		Lost:        func(scheme, authority string) { broke(scheme + "://" + authority) },
	})
	return t
}

// unknown is a connection that can't tell whether its peer is silent; it serves one request.
type unknown struct{ net.Conn }

// Quiet implements http1.Conn.
func (unknown) Quiet() bool { return false }

func (t *ownTransport) do(ctx context.Context, q *http1.Request) (answer, error) {
	r, err := t.client.Do(ctx, q)
	if err != nil {
		return answer{}, err
	}
	return answer{r.Status, r.ContentType, r.ContentEncoding, r.RetryAfter, r}, nil
}

func (t *ownTransport) closeIdle(base string) {
	scheme, authority, _ := strings.Cut(base, "://")
	t.client.CloseIdle(scheme, authority)
}

func (t *ownTransport) check(base string) net.Conn {
	scheme, authority, _ := strings.Cut(base, "://")
	return t.client.Check(scheme, authority)
}

func (t *ownTransport) closeAll() { t.client.Close() }
