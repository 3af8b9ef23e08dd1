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

type kvEvents struct {
	cfg     config.KVEventsConfig
	fleet   *fleet.Fleet
	logger  *slog.Logger
	changed chan struct{} // capacity 1: the fleet has changed
}

func newKVEvents(cfg config.KVEventsConfig, f *fleet.Fleet, logger *slog.Logger) *kvEvents {
	return &kvEvents{cfg: cfg, fleet: f, logger: logger, changed: make(chan struct{}, 1)}
}

// follow makes run look at the fleet again.
func (e *kvEvents) follow() {
	select {
	case e.changed <- struct{}{}:
	default: // run is about to look
	}
}

type subscribed struct {
	at, replay string
	end        func()
}

// run follows the fleet until ctx ends. It renews a subscription whose endpoints change.
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
					engine.Cache.Lost() // it came from the old publisher
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

// subscribe runs a subscription. end returns after it has stopped, so that the engine can get another one.
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

// endpoints returns where an instance publishes and replays events, "" for nowhere. Data-parallel ranks have consecutive ports (vLLM
// kv_events.py, offset_endpoint_port); an instance's own address already includes its rank.
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

type heardOf struct{ *prefixindex.Cache }

func (h heardOf) Stored(b kvevents.Blocks) { h.Cache.Stored(prefixindex.Blocks(b)) }
