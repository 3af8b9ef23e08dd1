package zmtp

import (
	"context"
	"net"

	"github.com/go-zeromq/zmq4"
)

// with connects to an endpoint and runs talk with the peer until talk returns or ctx ends. If ctx has ended, the error is the
// cause of ctx.
func with(ctx context.Context, endpoint string, socket zmq4.SocketType, limits Limits, talk func(*peer) error) error {
	err := dialled(ctx, endpoint, socket, limits.withDefaults(), talk)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// dialled is with, except that after the end of ctx its error may be that of the connection that was closed for it.
func dialled(ctx context.Context, endpoint string, socket zmq4.SocketType, limits Limits, talk func(*peer) error) error {
	address, err := dialable(endpoint)
	if err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: limits.Handshake}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	p, err := introduce(conn, socket, limits)
	if err != nil {
		return err
	}
	return talk(p)
}
