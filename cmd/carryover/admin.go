package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"carryover/server/admin"
)

// Bounds of the listener for operators.
const (
	adminHeaderLimit = 5 * time.Second
	adminLimit       = 30 * time.Second
	adminHeaderBytes = 16 << 10
)

// openAdmin opens the listener for operators. It returns nil if the configuration has none.
func openAdmin(ctx context.Context, cfg AdminConfig) (net.Listener, error) {
	if cfg.Listen == adminOff {
		return nil, nil
	}
	listener, err := listenAt(ctx, cfg.Listen, "an address with --admin-listen, or "+adminOff+" for no listener for operators")
	if err != nil {
		return nil, fmt.Errorf("admin.listen: %w", err)
	}
	return listener, nil
}

// listenAt listens on an address. If the address is taken, the error names the flag that chooses another one.
func listenAt(ctx context.Context, address, choose string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken by another program: choose %s (%w)", address, choose, err)
	}
	return listener, err
}

// tickets lists the tickets of a conversation that this replica knows to be in the store.
func (p *proxy) tickets(conversation string) []admin.Ticket {
	out := []admin.Ticket{}
	for _, t := range p.server.TicketsOut(conversation) {
		out = append(out, admin.Ticket{Instance: t.Decode, Tokens: t.Tokens, Deadline: t.Deadline})
	}
	return out
}

// pageAt returns the URL of the page for operators.
func pageAt(listener net.Listener) string { return "http://" + listener.Addr().String() + "/" }

// serveAdmin answers operators until ctx ends.
func (p *proxy) serveAdmin(ctx context.Context, listener net.Listener, token Secret, reload func() error, logger *slog.Logger) error {
	p.own.add(listener.Addr())
	deps := admin.Deps{
		Token: string(token), Fleet: p.fleet, Reload: reload, Pinned: p.server.Pinned, Budget: p.server.PinnedBudget, Exposed: p.server.Exposed,
		Waiting: p.server.Waiting, Open: p.server.Open, Journal: p.journal, Metrics: p.meters.scraped,
		Explain: p.server.ExplainHandler(), Health: p.server.HealthHandler(), Own: p.own.has, Tickets: p.tickets, Logger: logger, LogLevel: p.level,
	}
	if p.registry != nil {
		deps.Registry = p.registry
	}
	srv := &http.Server{
		Handler: admin.New(deps), ReadHeaderTimeout: adminHeaderLimit, ReadTimeout: adminLimit, WriteTimeout: adminLimit,
		IdleTimeout: adminLimit, MaxHeaderBytes: adminHeaderBytes, ErrorLog: log.New(io.Discard, "", 0),
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin: %w", err)
	}
	return nil
}
