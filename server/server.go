// Package server is the side of Carryover that clients see: it speaks the OpenAI API and Anthropic's Messages. It serves the endpoints
// (routes.go), the list of models and the counts of tokens (questions.go), and tells whether the replica is ready and what operators read
// of it (state.go). Package turn runs each turn. server.go puts the parts together, starts and drains them.
//
// The composition root makes the dependencies and the limits (deps.go).
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"carryover/server/admission"
	"carryover/server/apierror"
	"carryover/server/background"
	"carryover/server/connlimit"
	"carryover/server/events"
	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/quarantine"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/server/storetime"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Server is the client side of the proxy. Create it with New, serve with Run.
type Server struct {
	cfg         Config
	deps        Deps
	handler     http.Handler
	health      health
	turns       *turn.Handler
	Pins        *pins.Pins // what decode keeps for tickets
	quarantines *quarantine.Watch

	clients atomic.Pointer[connlimit.Listener] // nil until the server runs

	requests   *request.Reader
	Slots      *admission.Slots // of turns
	background *background.Group
}

// New returns a server that is ready to run.
func New(cfg Config, deps Deps) *Server {
	if cfg.Tell == nil {
		cfg.Tell = func(events.Kind, string) {}
	}
	s := &Server{cfg: cfg, deps: deps, background: background.New(cfg.Logger), Slots: admission.New(cfg.MaxStreams, cfg.QueueConfig)}
	problems := &apierror.Mapper{Delay: s.Slots.Delay, Hidden: func() []string { return addresses(deps.Fleet) }}
	ratios, store := request.NewRatios(), storetime.Store{Store: deps.Store, Limit: cfg.StoreTimeout}
	s.quarantines = quarantine.New(quarantine.Config{
		Secret: deps.Secret, Shared: deps.Shared, Fleet: deps.Fleet, Tell: cfg.Tell, Logger: cfg.Logger,
	})
	s.Pins = pins.New(pins.Config{
		ReleaseConfig: cfg.ReleaseConfig, HandBackConfig: cfg.HandBackConfig, TTL: cfg.TTL, TrialTimeout: cfg.ReuseTrialTimeout,
		Logger: cfg.Logger,
	}, pins.Deps{
		Fleet: deps.Fleet, Store: store, Legs: deps.Legs, Connector: deps.Connector, Epoch: s.quarantines, Shared: deps.Shared,
		Background: s.background.Run,
	})
	tickets := reuse.New(reuse.Config{
		MinTokens: cfg.ReuseMinTokens, MinShare: cfg.ReuseMinShare, Logger: cfg.Logger,
	}, reuse.Deps{
		Pins: s.Pins, Store: store, Fleet: deps.Fleet, Connector: deps.Connector, Epoch: s.quarantines,
		Tokens:   &proof.Tokens{Chains: deps.Secret.ChainKey(), Logger: cfg.Logger, Background: s.background.Run},
		Outlines: deps.Secret.OutlineKey(),
	})
	accepted := request.NewAccepted()
	s.requests = request.NewReader(cfg.Config, deps.Secret, request.NewInflight(cfg.MaxInflightBytes, cfg.MaxBodyBytes, cfg.ClientBodyTimeout), accepted, deps.Prefillers)
	picker := pick.New(pick.Deps{
		Fleet: deps.Fleet, Traits: deps.Connector.Traits(), Named: deps.Prefillers != nil, Ratios: ratios,
		Dialer: deps.Legs, Queue: s.Slots.Instances,
	})
	s.turns = turn.New(turn.Config{
		LegConfig: cfg.LegConfig, ReuseTrialTimeout: cfg.ReuseTrialTimeout, Logger: cfg.Logger,
	}, turn.Deps{
		Fleet: deps.Fleet, Legs: deps.Legs, Connector: deps.Connector, Pins: s.Pins, Epoch: s.quarantines, Background: s.background, Ratios: ratios,
		Accepted: accepted, Picker: picker, Tickets: tickets,
		Requests: s.requests, Slots: s.Slots, Names: request.ClientNames{Mode: cfg.LogClients, Secret: deps.Secret},
		Errors: problems, Observers: append([]record.Observer{record.Log(cfg.Logger, deps.RedisState)}, deps.Observers...), Sample: deps.Sample,
	})
	s.SetRouting(cfg.RoutingConfig)
	s.health = health{
		fleet: deps.Fleet, store: deps.Store, slots: s.Slots, routing: s.turns.Routing.Load, redis: deps.RedisState,
		named: deps.Prefillers != nil,
	}
	s.handler = s.routes(&questions{
		fleet: deps.Fleet, legs: deps.Legs, requests: s.requests, slots: s.Slots, errors: problems, judged: cfg.ForwardAuthorization,
	})
	return s
}

// addresses returns the hosts of a fleet's engines, in every form in which an engine may name itself.
func addresses(engines *fleet.Fleet) (all []string) {
	for _, engine := range slices.Concat(engines.Engines(upstream.RolePrefill), engines.Engines(upstream.RoleDecode), engines.Draining()) {
		_, authority, _ := strings.Cut(engine.BaseURL, "://")
		all = append(all, engine.BaseURL, authority, engine.Instance().Host())
	}
	return all
}

// SetRouting changes the routing of later turns.
func (s *Server) SetRouting(cfg turn.RoutingConfig) { s.turns.Routing.Store(&cfg) }

// drainDelay is the usual DrainDelay, in which load balancers see /readyz fail.
const drainDelay = 5 * time.Second

const maxHeaderBytes = 32 << 10

// keepAlive is how long a connection may be idle. Load balancers keep theirs for up to ten minutes, and the side that sends requests has to
// be the one that closes: a request that meets a close is lost. When connections are scarce, those that were idle for longest end before
// that (package connlimit).
const keepAlive, announced = 650 * time.Second, "timeout=650"

// underWay is how much longer than announced a connection is kept, for the answer that announces it and the next request.
const underWay = 5 * time.Second

// Run serves on the listener until ctx ends, then drains. /readyz fails at once, and the listener closes after a short delay. Open turns go
// on for the grace period; then the remaining ones get an error event and an aborted connection. Run returns nil after a drain.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	clients := connlimit.Listen(listener, s.cfg.MaxConnections)
	s.clients.Store(clients)
	srv := &http.Server{
		Handler: s.handler,
		// A turn ends with the cause background.ErrShuttingDown when the server abandons its turns. A second context for each turn would
		// cost nine allocations and a lock that all turns share.
		BaseContext:       func(net.Listener) context.Context { return s.background.Context() },
		ConnState:         clients.ConnState,
		ReadHeaderTimeout: s.cfg.ClientHeaderTimeout,
		IdleTimeout:       keepAlive + underWay,
		MaxHeaderBytes:    maxHeaderBytes,
		// Without this net/http would answer "OPTIONS *" with 200; the program answers 404.
		DisableGeneralOptionsHandler: true,
		// net/http would log clients' mistakes with their addresses. The line of each turn says more.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	served := make(chan error, 1) // one result, read once
	s.Pins.Begin(s.background.Repeat)
	s.quarantines.Compare(ctx)
	go func() { served <- srv.Serve(clients) }()
	s.background.Repeat("quarantines", quarantine.Every, s.quarantines.Risen, s.quarantines.Compare)
	s.background.Repeat("reminders", time.Minute, nil, s.quarantines.Remind)
	select {
	case err := <-served:
		s.background.Abandon()
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	return s.drain(srv, served)
}

func (s *Server) drain(srv *http.Server, served <-chan error) error {
	toBegin, forInstance := s.Slots.Waiting()
	s.Slots.Close()
	s.cfg.Logger.Info("draining", "grace", s.cfg.ShutdownGrace, "open", s.Slots.Open(), "waiting", toBegin+forInstance)
	s.cfg.Tell(events.Drain, "This replica drains: it takes no new turns, and ends when those that it has are over.")
	grace, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownGrace)
	defer cancel()
	s.awaitIdle(grace, cmp.Or(s.cfg.DrainDelay, min(drainDelay, s.cfg.ShutdownGrace/6)))
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Logger.Warn("grace period over; aborting open streams", "open", s.Slots.Open())
		s.background.Abandon()
		last, cancel := context.WithTimeout(context.Background(), background.AbandonDelay)
		defer cancel()
		if err = srv.Shutdown(last); err != nil {
			err = srv.Close()
		}
	}
	s.background.Abandon()
	s.background.Wait()
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// awaitIdle waits for the delay that load balancers need, or until no turn is open.
func (s *Server) awaitIdle(ctx context.Context, delay time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, delay)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for s.Slots.Open() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
