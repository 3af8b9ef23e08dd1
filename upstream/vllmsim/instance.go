package vllmsim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/connector"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
)

// keepAlive is uvicorn's keep-alive time-out, in wall time: clients must drop idle connections before it ends.
const keepAlive = 5 * time.Second

// Instance is one simulated vLLM server: an HTTP port, and one engine with a side channel for each data-parallel rank.
type Instance struct {
	live     atomic.Pointer[config.Config]
	tok      *bpe.Tokenizer
	clock    *engine.Clock
	server   *http.Server
	address  string // HTTP host:port
	ranks    []*rank
	doors    doors // listeners of an LMCache receiver
	handlers engine.Gate
	serving  engine.Gate // accept loops and side-channel connections
	faults   fault.Set
	holds    engine.Holds
	record   record
	pausing  pausing
	// bootstrap is the server beside Mooncake's prefill engines, nil for other instances.
	bootstrap *bootstrap
	requests  atomic.Int64
	turn      atomic.Int64 // counts requests that name no rank; they go to each rank in turn

	ctx    context.Context //nolint:containedctx // parent of every request; ends with Close
	cancel context.CancelFunc

	mu        sync.Mutex // guards what follows
	http      net.Listener
	accepting chan struct{}         // closed when http accepts no more connections
	conns     map[net.Conn]struct{} // HTTP and side-channel connections that are open
	closed    bool
}

// rank is the part of an engine that survives its restarts.
type rank struct {
	index    int
	side     net.Listener
	sidePort int
	engine   atomic.Pointer[engine.Engine]
	events   net.Listener // listener for KV events, nil for none
	replays  net.Listener

	mu   sync.Mutex   // guards past
	past engine.Stats // counts of earlier incarnations
}

// Start runs an instance on free ports of 127.0.0.1. Close ends it.
func Start(cfg config.Config) (*Instance, error) {
	return StartAt(cfg, "127.0.0.1:0", "127.0.0.1:0")
}

// StartAt runs an instance with HTTP and side channel at the given addresses. With several data-parallel ranks the side
// channels take consecutive ports, or free ones when the port is 0.
func StartAt(cfg config.Config, httpAddr, sideAddr string) (*Instance, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("simulator config: %w", err)
	}
	tok, err := bpe.New()
	if err != nil {
		return nil, err
	}
	i := &Instance{tok: tok, clock: engine.NewClock(cfg.TimeScale), conns: make(map[net.Conn]struct{})}
	i.live.Store(&cfg)
	i.faults.Places = engine.ShortestTarget
	i.faults.Draw = rand.New(rand.NewPCG(cfg.Seed, uint64(len(cfg.Role))))
	i.ctx, i.cancel = context.WithCancel(context.Background())
	if err := i.listen(httpAddr, sideAddr); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	i.server = &http.Server{
		Handler:           i,
		BaseContext:       func(net.Listener) context.Context { return i.ctx },
		ConnState:         i.connState,
		IdleTimeout:       keepAlive,
		ReadHeaderTimeout: time.Minute,
	}
	if err := i.openBootstrap(); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	i.acceptHTTP(i.http)
	if i.registers() {
		i.serving.Spawn(func() { i.register(i.ctx) })
	}
	for _, r := range i.ranks {
		i.serving.Spawn(func() {
			i.acceptSide(r.side, func(conn net.Conn) {
				_ = engine.ServeSide(conn, r.engine.Load) // it does not matter if a peer goes away
			})
		})
		if r.events != nil {
			i.serving.Spawn(func() {
				i.acceptEvents(r.events, func(conn net.Conn) error { return r.engine.Load().Events.Publish(conn) })
			})
		}
		if r.replays != nil {
			i.serving.Spawn(func() {
				i.acceptEvents(r.replays, func(conn net.Conn) error { return r.engine.Load().Events.Replay(conn) })
			})
		}
	}
	i.openToSenders()
	return i, nil
}

func (i *Instance) listen(httpAddr, sideAddr string) error {
	var err error
	if i.http, err = net.Listen("tcp", httpAddr); err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	i.address = i.http.Addr().String()
	side, err := net.ResolveTCPAddr("tcp", sideAddr)
	if err != nil {
		return fmt.Errorf("side channel address: %w", err)
	}
	if i.doors, err = openDoors(i.config()); err != nil {
		return err
	}
	for index := range i.config().DPRanks {
		at := *side
		if at.Port != 0 {
			at.Port += index
		}
		l, err := net.ListenTCP("tcp", &at)
		if err != nil {
			return fmt.Errorf("listen for side channel: %w", err)
		}
		r := &rank{index: index, side: l, sidePort: l.Addr().(*net.TCPAddr).Port}
		r.engine.Store(engine.New(&i.live, index, r.sidePort, i.tok, i.clock, connector.New))
		i.ranks = append(i.ranks, r)
		if err := r.listenEvents(i.config().Host, i.config().KVEvents); err != nil {
			return err
		}
	}
	return nil
}

func (i *Instance) config() *config.Config { return i.live.Load() }

func (i *Instance) engines() []*engine.Engine {
	list := make([]*engine.Engine, len(i.ranks))
	for n, r := range i.ranks {
		list[n] = r.engine.Load()
	}
	return list
}

// URL is the base URL of the HTTP server.
func (i *Instance) URL() string { return "http://" + i.address }

// Advance moves the engine clock forward, so leases and TTLs end without a wait. A wait that is under way, for example for a token
// or a transfer, still takes its time.
func (i *Instance) Advance(d time.Duration) {
	i.clock.Advance(d)
	for _, e := range i.engines() {
		e.Snapshot() // ends pins whose time is over, which wakes requests that wait for blocks
	}
}

// Restart replaces the engine process at the same addresses: another engine id and start time, no KV, metrics at zero.
// Requests under way lose their connection.
func (i *Instance) Restart() {
	for _, r := range i.ranks {
		old := r.engine.Load()
		fresh := engine.New(&i.live, r.index, r.sidePort, i.tok, i.clock, connector.New)
		if !r.engine.CompareAndSwap(old, fresh) {
			continue // another Restart was faster
		}
		old.Stop(engine.ErrRestarted)
		counted := old.Snapshot()
		counted.ForgetHoldings()
		counted.Restarts++
		r.mu.Lock()
		r.past.Add(counted)
		r.mu.Unlock()
	}
	i.dropConnections()
}

// Stats returns the counts since Start and the current state.
func (i *Instance) Stats() engine.Stats {
	var s engine.Stats
	for _, r := range i.ranks {
		r.mu.Lock()
		s.Add(r.past)
		s.Add(r.engine.Load().Snapshot())
		r.mu.Unlock()
	}
	s.RequestsTotal = int(i.requests.Load())
	return s
}

// SetFault adds a fault. FaultRefuse takes effect at once, all others with the next requests that they affect.
func (i *Instance) SetFault(f fault.Fault) error {
	if err := i.faults.Add(f); err != nil {
		return err
	}
	if f.Kind == fault.Refuse {
		i.mu.Lock()
		_ = i.http.Close() // closing twice does no harm
		accepting := i.accepting
		i.mu.Unlock()
		<-accepting // the kernel accepts connections until the call of Accept has returned
		i.dropConnections()
	}
	return nil
}

// ClearFaults removes all faults; an instance that refused connections listens again.
func (i *Instance) ClearFaults() error {
	refused := false
	for _, f := range i.faults.All() {
		refused = refused || f.Kind == fault.Refuse
	}
	i.faults.Clear()
	if !refused {
		return nil
	}
	l, err := net.Listen("tcp", i.address)
	if err != nil {
		return fmt.Errorf("listen again: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.http = l
	i.acceptHTTP(l)
	return nil
}

// Close ends the instance and returns when none of its goroutines is left.
func (i *Instance) Close() error {
	i.mu.Lock()
	i.closed = true
	if i.http != nil {
		_ = i.http.Close() // refused instances have closed it before
	}
	i.mu.Unlock()
	i.cancel()
	var err error
	if i.server != nil {
		err = i.server.Close()
	}
	_ = i.doors.close() // nothing to lose
	i.closeBootstrap()
	for _, r := range i.ranks {
		for _, l := range []net.Listener{r.side, r.events, r.replays} {
			if l != nil {
				_ = l.Close() // nothing to lose
			}
		}
		r.engine.Load().Stop(engine.ErrRestarted)
	}
	i.dropConnections()
	i.handlers.Close()
	i.serving.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (i *Instance) acceptHTTP(l net.Listener) {
	accepting := make(chan struct{})
	i.accepting = accepting
	i.serving.Spawn(func() {
		defer close(accepting)
		_ = i.server.Serve(l) // ends when the listener is closed
	})
}

// acceptSide accepts peers and serves them until the listener is closed.
func (i *Instance) acceptSide(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if !i.track(conn) {
			_ = conn.Close() // the instance is closing
			return
		}
		i.serving.Spawn(func() {
			defer i.untrack(conn)
			serve(conn)
		})
	}
}

func (i *Instance) connState(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		i.track(conn)
	case http.StateClosed, http.StateHijacked:
		i.mu.Lock()
		delete(i.conns, conn)
		i.mu.Unlock()
	}
}

func (i *Instance) track(conn net.Conn) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.conns[conn] = struct{}{}
	return true
}

func (i *Instance) untrack(conn net.Conn) {
	i.mu.Lock()
	delete(i.conns, conn)
	i.mu.Unlock()
	_ = conn.Close() // the peer has gone or has to go
}

// dropConnections closes all connections, as the end of a process would.
func (i *Instance) dropConnections() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for conn := range i.conns {
		_ = conn.Close() // that is the point
	}
}
