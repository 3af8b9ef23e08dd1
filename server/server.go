package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"carryover/convcache"
	"carryover/server/connlimit"
	"carryover/server/outline"
	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/quarantine"
	"carryover/server/queue"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream/fleet"
)

// Server is the client side of the proxy: it takes requests in, runs their turns, and drains when it is asked to stop. Create it with
// New, serve with Run.
type Server struct {
	cfg         Config
	deps        Deps
	handler     http.Handler
	intake      *intake
	turns       *turns
	pins        *pins.Pins
	quarantines *quarantine.Watch
	exposures   *quarantine.ExposureWatch
	observers   []record.Observer
	counts      counts

	routing atomic.Pointer[RoutingConfig]
	clients atomic.Pointer[connlimit.Listener] // nil until the server runs

	streams     chan struct{} // has one element for each turn that has a slot
	turnSlots   *queue.Queue  // turns that wait for a slot of the server
	engineSlots *pick.EngineSlots
	background  *background
	draining    atomic.Bool
}

// New returns a server that is ready to run.
func New(cfg Config, deps Deps) *Server {
	s := &Server{cfg: cfg, deps: deps, background: newBackground(cfg.Logger), streams: make(chan struct{}, cfg.MaxStreams)}
	s.turnSlots, s.engineSlots = queue.New(cfg.turnSlots()), pick.NewSlots(deps.Fleet, cfg.engineSlots())
	ratios, outlines, lineages := request.NewRatios(), outline.NewMemory(0), quarantine.NewLineages(deps.Secret, cfg.Logger)
	s.pins = pins.New(cfg.pins(), pins.Deps{
		Fleet: deps.Fleet, Store: deps.Store, Legs: deps.Legs, Connector: deps.Connector, Lineages: lineages, Background: s.background.run,
		Blame: func(engine *fleet.Engine, err error) { blame(engine, err, true) },
	})
	s.intake = &intake{
		requests: request.NewReader(s.cfg.Config, deps.Secret, request.NewInflight(cfg.MaxInflightBytes, cfg.MaxBodyBytes), deps.Prefillers),
		prover: &prover{
			cfg: &s.cfg, tokens: deps.Tokens, history: deps.History, reuses: deps.Connector.Traits().Reuses,
			arena: s.pins.HandBacks.Arena(), outlines: outline.NewKey(),
		},
		names: clientNames{cfg.LogClients, deps.Secret}, logger: cfg.Logger, awaitSlot: s.awaitSlot,
	}
	s.turns = &turns{
		cfg: &s.cfg, deps: &s.deps, pins: s.pins, lineages: lineages, background: s.background,
		tickets: &ticketMaker{cfg: &s.cfg, deps: &s.deps, pins: s.pins, background: s.background, outlines: outlines, lineages: lineages},
		finder:  &finder{cfg: &s.cfg, deps: &s.deps, pins: s.pins, background: s.background, outlines: outlines, lineages: lineages},
		picker: pick.New(pick.Deps{
			Fleet: deps.Fleet, Traits: deps.Connector.Traits(), Named: deps.Prefillers != nil, Ratios: ratios,
			Asker: pick.Engines{Dialer: deps.Legs}, Slots: s.engineSlots,
		}),
		retries: &retries{fleet: deps.Fleet, budget: newRetryBudget(&s.counts.retriesDenied), patience: cfg.FirstByteTimeout / 2},
		ratios:  ratios, counts: &s.counts,
		unseat: s.unseat,
	}
	s.SetRouting(cfg.RoutingConfig)
	watched := quarantine.WatchConfig{Fleet: deps.Fleet, Logger: cfg.Logger, StoreTimeout: cfg.StoreTimeout}
	s.quarantines = quarantine.NewWatch(watched, deps.SharedQuarantines)
	s.exposures = quarantine.NewExposureWatch(watched, lineages, s.pins, deps.SharedLineages, s.background.run)
	s.observers = append([]record.Observer{record.Log(cfg.Logger, deps.RedisState)}, deps.Observers...)
	s.handler = s.routes()
	return s
}

// SetRouting changes the routing of turns that begin from now on.
func (s *Server) SetRouting(cfg RoutingConfig) { s.routing.Store(&cfg) }

// GiveUp takes a conversation's ticket out of the store, if it is still there, and has decode free its blocks while the server runs. The
// caller bounds ctx.
func (s *Server) GiveUp(ctx context.Context, conversation convcache.Key, id convcache.TicketID, model string) {
	s.pins.GiveUp(ctx, conversation, id, model)
}

// drainDelay is how long a draining server still accepts connections, so that load balancers see /readyz fail first.
const drainDelay = 5 * time.Second

// abandonDelay is how long a turn that outlasts the grace period gets to send its error event.
const abandonDelay = 5 * time.Second

// Run serves on the listener until ctx ends, then drains: /readyz fails at once, the listener closes after a short delay, open turns go
// on for the grace period, and the turns that are left then get an error event and an aborted connection. Run returns nil after a drain.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	clients := s.limited(listener)
	srv := &http.Server{
		Handler:           s.handler,
		BaseContext:       s.base,
		ConnState:         clients.ConnState,
		ReadHeaderTimeout: s.cfg.ClientHeaderTimeout,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    s.cfg.MaxHeaderBytes,
		// Without this net/http would answer "OPTIONS *" with 200; the program answers 404.
		DisableGeneralOptionsHandler: true,
		// net/http would log clients' mistakes with their addresses. The line of each turn says more.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	served := make(chan error, 1) // one result, read once
	for _, task := range s.pins.Tasks() {
		s.background.repeat(task.Name, task.Every, task.Early, task.Round)
	}
	s.background.repeat("quarantines", quarantine.Every, nil, s.quarantines.Compare)
	s.background.repeat("exposures", quarantine.Every, s.exposures.Changed(), s.exposures.Compare)
	go func() { served <- srv.Serve(clients) }()
	select {
	case err := <-served:
		s.background.abandon(errShuttingDown)
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	return s.drain(srv, served)
}

// base returns the parent of all requests' contexts. A turn therefore ends with the cause errShuttingDown when the server abandons its
// turns. Giving each turn a second context would cost nine allocations and a lock that all turns share.
func (s *Server) base(net.Listener) context.Context { return s.background.ctx }

func (s *Server) drain(srv *http.Server, served <-chan error) error {
	s.draining.Store(true)
	toBegin, forInstance := s.Waiting()
	s.cfg.Logger.Info("draining", "grace", s.cfg.ShutdownGrace, "open", len(s.streams), "waiting", toBegin+forInstance)
	s.turnSlots.Close() // a turn that waits is better off with a server that stays
	s.engineSlots.Close()
	grace, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownGrace)
	defer cancel()
	s.awaitIdle(grace, min(drainDelay, s.cfg.ShutdownGrace/6))
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Logger.Warn("grace period over; open streams are told and aborted", "open", len(s.streams))
		s.background.abandon(errShuttingDown)
		last, cancel := context.WithTimeout(context.Background(), abandonDelay)
		defer cancel()
		if err = srv.Shutdown(last); err != nil {
			err = srv.Close()
		}
	}
	s.background.abandon(errShuttingDown)
	s.background.wait()
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
	for len(s.streams) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
