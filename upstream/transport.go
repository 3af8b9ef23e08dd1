package upstream

import (
	"context"
	"net"
	"net/http"
	"time"
)

// idleFor is how long an unused connection is kept. vLLM's server (uvicorn)
// closes idle connections after 5 s, and a request written into that moment is
// lost, so ours go first.
const idleFor = 4 * time.Second

// newTransport returns the HTTP/1.1 transport to the engines. It follows no
// proxy from the environment, asks for no compression, and keeps enough idle
// connections for every turn in flight: net/http's default of two per host means
// a new connection for nearly every leg. Names are resolved for each connection.
func newTransport(dial time.Duration) *http.Transport {
	dialer := &net.Dialer{
		Timeout:         dial,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3},
		Control:         boundUnacked,
	}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return watch(c), nil
		},
		TLSHandshakeTimeout:    dial,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        idleFor,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
	}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := t.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return secure(ctx, c, address, t.TLSClientConfig, dial)
	}
	return t
}
