package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/net/netutil"

	"carryover/convcache"
	"carryover/upstream"
)

// Server runs turns. Create it with New, serve with Run.
type Server struct {
	cfg  Config
	deps Deps
	echo *echo.Echo

	pace   *upstream.Pace
	budget *retryBudget
	silent *silence

	echoes   *echoes
	chains   convcache.ChainKey
	releases *releases
	blocks   *blocks
	branches branches
	verdicts *verdicts

	streams    chan struct{} // one slot per turn
	inflight   *inflight     // bytes of request bodies in memory
	decodeOnly chan struct{} // one slot per turn that decode prefills by itself

	detached   sync.WaitGroup // work that outlives its client
	draining   atomic.Bool
	background context.Context         //nolint:containedctx // ends all turns at shutdown; it belongs to no request
	abandon    context.CancelCauseFunc // ends background
}

// New returns a server that is ready to run.
func New(cfg Config, deps Deps) *Server {
	s := &Server{
		cfg: cfg, deps: deps,
		pace:       upstream.NewPace(),
		budget:     newRetryBudget(),
		silent:     &silence{count: map[string]int{}},
		echoes:     &echoes{seen: map[string]bool{}},
		chains:     deps.Secret.ChainKey(),
		releases:   newReleases(cfg.ReleaseBacklog),
		blocks:     newBlocks(cfg.TTL),
		verdicts:   &verdicts{logger: cfg.Logger, known: map[engine]verdict{}},
		streams:    make(chan struct{}, cfg.MaxStreams),
		inflight:   newInflight(cfg.MaxInflightBytes, cfg.MaxBodyBytes),
		decodeOnly: make(chan struct{}, maxDecodeOnly),
	}
	s.background, s.abandon = context.WithCancelCause(context.Background())
	s.echo = s.routes()
	return s
}

// Handler serves the main listener's endpoints.
func (s *Server) Handler() http.Handler { return s.echo }

// drainDelay is how long a server that is asked to stop still accepts
// connections, so that load balancers see /readyz fail first.
const drainDelay = 5 * time.Second

// abandonDelay is how long turns that outlast the grace period get to send their
// last words.
const abandonDelay = 5 * time.Second

// Run serves on the listener until ctx ends, then drains: /readyz fails at once,
// the listener closes after a short delay, open turns go on for the grace period,
// and what is left then gets an error event and an aborted connection. Run returns
// nil after a drain.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	srv := &http.Server{
		Handler:           s.echo,
		ReadHeaderTimeout: s.cfg.ClientHeaderTimeout,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    s.cfg.MaxHeaderBytes,
		// net/http answers "OPTIONS *" with 200 by itself; here it is a 404.
		DisableGeneralOptionsHandler: true,
		// net/http logs what clients do wrong, with their addresses; a turn's own
		// line says more.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	served := make(chan error, 1) // one result, read once
	if s.cfg.Release {
		s.detached.Go(func() { s.workOff(s.background) })
	}
	s.detached.Go(func() { s.watchBars(s.background) })
	go func() { served <- srv.Serve(netutil.LimitListener(listener, s.cfg.MaxConnections)) }()
	select {
	case err := <-served:
		s.abandon(errShuttingDown)
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	return s.drain(srv, served)
}

func (s *Server) drain(srv *http.Server, served <-chan error) error {
	s.draining.Store(true)
	s.cfg.Logger.Info("draining", "grace", s.cfg.ShutdownGrace)
	grace, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownGrace)
	defer cancel()
	s.awaitIdle(grace, min(drainDelay, s.cfg.ShutdownGrace/6))
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Logger.Warn("grace period over; open streams are told and aborted", "open", len(s.streams))
		s.abandon(errShuttingDown)
		last, cancel := context.WithTimeout(context.Background(), abandonDelay)
		defer cancel()
		if err = srv.Shutdown(last); err != nil {
			err = srv.Close()
		}
	}
	s.abandon(errShuttingDown)
	s.detached.Wait()
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// awaitIdle gives load balancers their delay, which nobody needs once no turn is
// open.
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
