package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
)

// checkAdmin refuses an address that other machines can reach, because a demo has no token.
func (o *demoOptions) checkAdmin() error {
	if o.adminListen == adminOff {
		return nil
	}
	if host, _, err := net.SplitHostPort(o.adminListen); err != nil || !isLoopback(host) {
		return &usageError{fmt.Errorf("demo --admin-listen %s: want a port of a loopback address, such as %s, or %s", o.adminListen, adminDefault, adminOff)}
	}
	return nil
}

// openAdmin opens the listener for operators, nil if it is off. If the user did not ask for the address, any free port will do.
func (o *demoOptions) openAdmin(ctx context.Context) (net.Listener, error) {
	listener, err := openAdmin(ctx, AdminConfig{Listen: o.adminListen})
	if errors.Is(err, syscall.EADDRINUSE) && !o.adminAsked {
		return openAdmin(ctx, AdminConfig{Listen: "127.0.0.1:0"})
	}
	return listener, err
}

// tellOperators makes the proxy answer operators while it runs.
func tellOperators(p *proxy, listener net.Listener, logger *slog.Logger) {
	reload := func() error { return errors.New("a demo has no configuration that could be read again") }
	p.alongside = append(p.alongside, func(ctx context.Context) error { return p.serveAdmin(ctx, listener, "", reload, logger) })
}
