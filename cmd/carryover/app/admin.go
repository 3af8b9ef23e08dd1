package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/server/admin"
	"carryover/server/record"
)

const (
	adminHeaderLimit = 5 * time.Second
	adminLimit       = 30 * time.Second
	adminHeaderBytes = 16 << 10
)

// OpenAdmin opens the listener for operators; nil if the configuration has none.
func OpenAdmin(ctx context.Context, cfg config.AdminConfig) (net.Listener, error) {
	if cfg.Listen == config.AdminOff {
		return nil, nil
	}
	listener, err := ListenAt(ctx, cfg.Listen, "an address with --admin-listen, or "+config.AdminOff+" for no listener for operators")
	if err != nil {
		return nil, fmt.Errorf("admin.listen: %w", err)
	}
	return listener, nil
}

// ServeAdmin serves operators until ctx ends.
func (p *Proxy) ServeAdmin(ctx context.Context, listener net.Listener, token config.Secret, reload func() error, logger *slog.Logger) error {
	p.own.add(listener.Addr())
	deps := admin.Deps{
		Token: string(token), Fleet: p.Fleet, Registration: admin.Registration{Own: p.own.has}, Reload: reload,
		State: admin.State{
			Pinned: p.Server.Pins.Pinned, Budget: p.Server.Pins.Budget, Waiting: p.Server.Slots.Waiting, Open: p.Server.Slots.Open,
			Ready: p.Server.Ready, Identity: identity(), Drain: p.Server.Drain,
		},
		Handlers: admin.Handlers{Metrics: p.Telemetry.Meters.Scraped, Health: p.Server.HealthHandler()},
		Journal:  p.Journal, Events: p.Events, Conversations: admin.Conversations{HashID: p.HashID, Tickets: p.tickets}, Logger: logger, LogLevel: p.Level,
	}
	if p.Sources.registry != nil {
		deps.Registration.Registry = p.Sources.registry
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

// PageAt returns the URL of the page for operators.
func PageAt(listener net.Listener) string { return "http://" + listener.Addr().String() + "/" }

// tickets lists a conversation's tickets in the store, as far as this replica knows.
func (p *Proxy) tickets(conversation string) []admin.Ticket {
	out := []admin.Ticket{}
	for _, t := range p.Server.Pins.TicketsOut(conversation) {
		out = append(out, admin.Ticket{Instance: t.Decode, Tokens: t.Tokens, Deadline: t.Deadline})
	}
	return out
}

func identity() admin.Identity {
	host, _ := os.Hostname() // "" if unknown
	reasons := map[string]string{}
	for _, term := range slices.Concat(record.MissReasons(), record.EmptyHits()) {
		reasons[term.Name] = plain(term)
	}
	for _, term := range record.IneligibleReasons() {
		reasons["ineligible_"+term.Name] = plain(term)
	}
	return admin.Identity{Version: command.Version, Replica: host, Reasons: reasons}
}

// plain returns the sentences of a term without the marks of Markdown.
func plain(term record.Term) string { return strings.ReplaceAll(term.Sentences(), "`", "") }

// ListenAt listens on an address. If that is taken, the error names the flag that chooses another one, and a free port.
func ListenAt(ctx context.Context, address, choose string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken by another program: choose %s%s (%w)", address, choose, freePort(ctx, address), err)
	}
	return listener, err
}

// freePort names a free port a little above the address, "" if there is none.
func freePort(ctx context.Context, address string) string {
	host, port, _ := net.SplitHostPort(address)
	taken, _ := strconv.Atoi(port)
	for n := taken + 1; n < taken+100; n++ {
		if l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(n))); err == nil {
			_ = l.Close()
			return fmt.Sprintf("; port %d is free", n)
		}
	}
	return ""
}

const ownLookup = 2 * time.Second

// ownPorts are the ports of this program's listeners. An instance there, on this machine, would send turns in a circle.
type ownPorts struct {
	mu  sync.Mutex // guards all
	all []string
}

func (o *ownPorts) add(listener net.Addr) {
	if tcp, ok := listener.(*net.TCPAddr); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, strconv.Itoa(tcp.Port))
	}
}

// has reports whether host:port is one of them. It looks names up; an unknown name is not.
func (o *ownPorts) has(ctx context.Context, authority string) bool {
	host, port, _ := net.SplitHostPort(authority)
	o.mu.Lock()
	own := slices.Contains(o.all, port)
	o.mu.Unlock()
	if !own {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, ownLookup)
	defer cancel()
	addrs, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return slices.ContainsFunc(addrs, func(addr netip.Addr) bool { // an address at which this machine can listen is its own
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		if err == nil {
			_ = l.Close()
		}
		return err == nil
	})
}
