package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
)

// checkAdmin refuses an address that other machines can reach, because a demo has no token.
func (o *Options) checkAdmin() error {
	if o.adminListen == config.AdminOff {
		return nil
	}
	if host, _, err := net.SplitHostPort(o.adminListen); err != nil || !config.IsLoopback(host) {
		return &command.UsageError{Err: fmt.Errorf("demo --admin-listen %s: want a port of a loopback address, such as %s, or %s", o.adminListen, config.AdminDefault, config.AdminOff)}
	}
	return nil
}

// openAdmin opens the listener for operators, nil if it is off. If the user did not ask for the address, any free port will do.
func (o *Options) openAdmin(ctx context.Context) (net.Listener, error) {
	listener, err := app.OpenAdmin(ctx, config.AdminConfig{Listen: o.adminListen})
	if errors.Is(err, syscall.EADDRINUSE) && !o.adminAsked {
		return app.OpenAdmin(ctx, config.AdminConfig{Listen: "127.0.0.1:0"})
	}
	return listener, err
}

// tellOperators makes the proxy answer operators while it runs.
func tellOperators(p *app.Proxy, listener net.Listener, logger *slog.Logger) {
	reload := func() error { return errors.New("a demo has no configuration that could be read again") }
	p.Alongside = append(p.Alongside, func(ctx context.Context) error { return p.ServeAdmin(ctx, listener, "", reload, logger) })
}
