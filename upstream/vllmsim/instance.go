package vllmsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"carryover/upstream/vllmsim/api"
	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/ops"
)

// Instance is one simulated vLLM server: an HTTP port, and one engine with a side channel for each data-parallel rank.
type Instance struct {
	live      atomic.Pointer[config.Config]
	tok       *bpe.Tokenizer
	clock     *engine.Clock
	network   network
	api       *api.Endpoints
	ops       *ops.Endpoints
	underWay  engine.Gate
	requests  atomic.Int64
	ranks     []*rank
	doors     doors      // listeners of an LMCache receiver
	bootstrap *bootstrap // server beside Mooncake's prefill engines, nil for other instances
	faults    fault.Set
	holds     engine.Holds
	record    record
}

// Start runs an instance on free ports of 127.0.0.1. Close ends it.
func Start(cfg config.Config) (*Instance, error) {
	return StartAt(cfg, "127.0.0.1:0", "127.0.0.1:0")
}

// StartAt runs an instance with HTTP and side channel at these addresses. With several data-parallel ranks the side channels use consecutive
// ports, or free ports if the port is 0.
func StartAt(cfg config.Config, httpAddr, sideAddr string) (*Instance, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("simulator config: %w", err)
	}
	i := &Instance{tok: bpe.New(), clock: engine.NewClock(cfg.TimeScale)}
	i.live.Store(&cfg)
	i.faults.Places = engine.ShortestTarget
	i.faults.Draw = rand.New(rand.NewPCG(cfg.Seed, uint64(len(cfg.Role))))
	i.api, i.ops = api.New(i.config, i.engines, i.tok, &i.holds), ops.New(i.config, i.engines)
	if err := i.open(&cfg, httpAddr, sideAddr); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	i.network.serve(i)
	for _, r := range i.ranks {
		r.serve(&i.network)
	}
	i.doors.serve(&i.network, i.ranks[0].engine.Load)
	return i, nil
}

func (i *Instance) open(cfg *config.Config, httpAddr, sideAddr string) (err error) {
	if err := i.network.listen(httpAddr); err != nil {
		return err
	}
	if i.doors, err = openDoors(cfg); err != nil {
		return err
	}
	side, err := net.ResolveTCPAddr("tcp", sideAddr)
	if err != nil {
		return fmt.Errorf("side channel address: %w", err)
	}
	for index := range cfg.DPRanks {
		at := *side
		if at.Port != 0 {
			at.Port += index
		}
		r := &rank{index: index}
		i.ranks = append(i.ranks, r) // Close closes what is already open
		if err := r.open(&at, cfg); err != nil {
			return err
		}
		r.engine.Store(i.newEngine(r))
	}
	i.bootstrap, err = openBootstrap(cfg, &i.network, i.ranks)
	return err
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
func (i *Instance) URL() string { return "http://" + i.network.address }

// Advance moves the engine clock forward, so that leases and TTLs end without a wait. Waits under way, for example for a token or a transfer,
// still take their time.
func (i *Instance) Advance(d time.Duration) {
	i.clock.Advance(d)
	for _, e := range i.engines() {
		e.Snapshot() // ends expired pins, which wakes requests that wait for blocks
	}
}

// Restart replaces the engine process at the same addresses: another engine id and start time, no KV, metrics at zero. Requests under way
// lose their connection.
func (i *Instance) Restart() {
	i.network.drop(func() {
		for _, r := range i.ranks {
			r.replace(i.newEngine(r))
		}
	})
}

// Stats returns the counts since Start and the current state.
func (i *Instance) Stats() engine.Stats {
	var s engine.Stats
	for _, r := range i.ranks {
		r.addStats(&s)
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
		i.network.refuse()
	}
	return nil
}

// ClearFaults removes all faults. An instance that refused connections listens again.
func (i *Instance) ClearFaults() error {
	refused := i.faults.Refuses()
	i.faults.Clear()
	if !refused {
		return nil
	}
	return i.network.listenAgain()
}

// Close ends the instance and returns when none of its goroutines is left.
func (i *Instance) Close() error {
	i.network.stop()
	var err error
	if i.network.server != nil {
		err = i.network.server.Close()
	}
	i.doors.close()
	i.bootstrap.close()
	for _, r := range i.ranks {
		r.close()
	}
	i.network.drop(func() {})
	i.underWay.Close()
	i.network.serving.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
