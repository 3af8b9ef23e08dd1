package app

import (
	"context"
	"log/slog"
	"net"
	"strconv"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/prefixindex"
	"carryover/upstream/zmq/kvevents"
	"carryover/upstream/zmq/zmtp"
)

// kvEvents are the subscriptions to the KV events of prefill instances, one for each engine that publishes them. They follow the fleet as instances
// come and go.
type kvEvents struct {
	cfg     config.KVEventsConfig
	fleet   *fleet.Fleet
	logger  *slog.Logger
	changed chan struct{} // room for one word: the fleet has other instances
}

func newKVEvents(cfg config.KVEventsConfig, f *fleet.Fleet, logger *slog.Logger) *kvEvents {
	return &kvEvents{cfg: cfg, fleet: f, logger: logger, changed: make(chan struct{}, 1)}
}

// follow makes run look which instances the fleet has.
func (e *kvEvents) follow() {
	select {
	case e.changed <- struct{}{}:
	default: // it is about to look
	}
}

// subscribed is a subscription that runs, and where it listens.
type subscribed struct {
	at, replay string
	end        func()
}

// run keeps a subscription to each prefill engine of the fleet that publishes, until ctx ends. One whose endpoints are configured anew is
// subscribed to anew.
func (e *kvEvents) run(ctx context.Context) error {
	all := map[*fleet.Engine]subscribed{}
	defer func() {
		for _, one := range all {
			one.end()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.changed:
		}
		kept := map[*fleet.Engine]subscribed{}
		for _, engine := range e.fleet.Engines(upstream.RolePrefill) {
			at, replay := e.endpoints(engine.Instance())
			if at == "" {
				continue
			}
			one := all[engine]
			if one.at != at || one.replay != replay {
				if one.end != nil {
					one.end()
					engine.Cache.Lost() // what it holds was told by the publisher of before
				}
				one = subscribed{at, replay, e.subscribe(ctx, engine, at, replay)}
			}
			delete(all, engine)
			kept[engine] = one
		}
		for engine, one := range all {
			one.end()
			engine.Cache.Lost()
		}
		all = kept
	}
}

// subscribe runs a subscription until the returned function has ended it: the engine may be followed anew then.
func (e *kvEvents) subscribe(ctx context.Context, engine *fleet.Engine, at, replay string) (end func()) {
	s := kvevents.Subscription{
		Endpoint: at, Replay: replay, Sink: heardOf{engine.Cache}, Logger: e.logger.With("instance", engine.Name),
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx); ctx.Err() == nil {
			s.Logger.Error("KV events can't be followed", "error", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// endpoints are where an instance publishes its events and replays them, "" for nowhere. Data-parallel ranks have ports behind one
// another (vLLM kv_events.py, offset_endpoint_port); that of an instance's own address is its rank's already.
func (e *kvEvents) endpoints(instance *upstream.Instance) (at, replay string) {
	host := instance.Host()
	endpoint := func(port int) string {
		if port == 0 {
			return ""
		}
		return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port+instance.Rank))
	}
	if at = instance.KVEvents; at == "" {
		at = endpoint(e.cfg.Port)
	} else if hostPort, err := zmtp.ParseEndpoint(at); err == nil {
		host, _, _ = net.SplitHostPort(hostPort)
	}
	return at, endpoint(e.cfg.ReplayPort)
}

// heardOf tells the fleet what an engine holds.
type heardOf struct{ *prefixindex.Cache }

// Stored implements kvevents.Sink.
func (h heardOf) Stored(b kvevents.Blocks) { h.Cache.Stored(prefixindex.Blocks(b)) }
