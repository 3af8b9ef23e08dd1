package vllmsim

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/connector"
	"carryover/upstream/vllmsim/engine"
)

// rank is the part of an engine that survives restarts.
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

func (i *Instance) newEngine(r *rank) *engine.Engine {
	return engine.New(&i.live, r.index, r.sidePort, i.tok, i.clock, connector.New)
}

func (r *rank) open(side *net.TCPAddr, cfg *config.Config) error {
	l, err := net.ListenTCP("tcp", side)
	if err != nil {
		return fmt.Errorf("listen for side channel: %w", err)
	}
	r.side, r.sidePort = l, l.Addr().(*net.TCPAddr).Port
	if r.events, err = r.listenEvents(cfg.Host, cfg.KVEvents.Port); err == nil && cfg.KVEvents.Port != 0 {
		r.replays, err = r.listenEvents(cfg.Host, cfg.KVEvents.ReplayPort)
	}
	return err
}

// listenEvents opens a socket of KV events. Each rank has its own port; 0 means no socket, a negative port any free one.
func (r *rank) listenEvents(host string, port int) (net.Listener, error) {
	switch {
	case port == 0:
		return nil, nil
	case port < 0:
		port = 0
	default:
		port += r.index
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen for KV events: %w", err)
	}
	return l, nil
}

// serve answers the peers of all sockets until they close. Errors mean that a peer has gone, which does not matter.
func (r *rank) serve(n *network) {
	n.accept(r.side, func(conn net.Conn) {
		_ = engine.ServeSide(conn, r.engine.Load, func(engine.SideRequest) bool { return true })
	})
	if r.events != nil {
		n.accept(r.events, func(conn net.Conn) { _ = r.engine.Load().Events.Publish(conn) })
	}
	if r.replays != nil {
		n.accept(r.replays, func(conn net.Conn) { _ = r.engine.Load().Events.Replay(conn) })
	}
}

func (r *rank) replace(fresh *engine.Engine) {
	old := r.engine.Swap(fresh)
	old.Stop(engine.ErrRestarted)
	counted := old.Snapshot()
	counted.ForgetHoldings()
	counted.Restarts++
	r.mu.Lock()
	r.past.Add(counted)
	r.mu.Unlock()
}

func (r *rank) addStats(s *engine.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Add(r.past)
	s.Add(r.engine.Load().Snapshot())
}

func (r *rank) close() {
	for _, l := range []net.Listener{r.side, r.events, r.replays} {
		if l != nil {
			_ = l.Close() // nothing to lose
		}
	}
	if e := r.engine.Load(); e != nil {
		e.Stop(engine.ErrRestarted)
	}
}
