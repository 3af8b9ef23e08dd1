package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/server/pins"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/discovery"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// tried holds the observations of turns on a pair.
type tried struct {
	turns           []probeTurn
	prefill, decode kvPlace
	plugIn          facts.Finding // of decode
	quarantined     bool          // prefill
	parity          facts.Finding // of the shape of the turns, Unknown if it was not learnt
	template        facts.Finding // whether it is append-only, which the history proof needs
	addressTaken    bool          // that notifications come to
	left            int           // tickets that could not be released
}

// turn returns the turn of a conversation, nil if it was not sent.
func (t *tried) turn(stream bool, second bool) *probeTurn {
	for i := range t.turns {
		if turn := &t.turns[i]; turn.stream == stream && turn.second == second {
			return turn
		}
	}
	return nil
}

// Bounds of a pair.
const (
	releaseLimit  = 10 * time.Second
	parityLimit   = 3 * time.Second // that /tokenize needs beside a turn
	probeGrace    = 2 * time.Second // for turns in flight at the end; there are none then
	startingLimit = 5 * time.Second
	restingLooks  = 5
)

// pairConfig returns the configuration for one pair: it keeps the settings of turns, and nothing else can join, be asked or be shared.
func pairConfig(cfg config.Config) config.Config {
	usual := config.Default()
	if cfg.Connector.Name != config.ConnectorLMCache { // notifications may come by way of it, and there are no tickets
		cfg.Redis = usual.Redis
	}
	cfg.Prefill, cfg.Decode, cfg.Discovery, cfg.KVEvents = nil, nil, usual.Discovery, usual.KVEvents
	cfg.Routing = config.RoutingConfig{Prefill: usual.Routing.Prefill, Decode: usual.Routing.Decode, PrefillFailure: string(server.PrefillError)}
	cfg.Release = config.ReleaseConfig{Mode: "on", BranchKeep: usual.Release.BranchKeep}
	cfg.HandBack.Mode = string(pins.HandBackOff) // a second turn is to find the ticket of the first
	cfg.Conversation.Sources, cfg.Conversation.TenantHeader, cfg.Conversation.TenantSalt = config.UsualSources(), "", false
	cfg.Timeouts.ShutdownGrace = probeGrace
	return cfg
}

// try runs a program in front of exactly this pair, and turns through it. The error is a fault in the set-up of this process.
func (d *doctor) try(ctx context.Context, c couple, model string) (*tried, error) {
	if d.cfg.Connector.Name == config.ConnectorLMCache && isTaken(ctx, d.cfg.LMCache.Listen) {
		return &tried{addressTaken: true}, nil
	}
	p, deps, err := app.NewParts(app.Configured{Config: pairConfig(d.cfg)}, d.logger)
	if err != nil {
		return nil, err
	}
	listed := &discovery.Listed{}
	listed.Replace([]upstream.Instance{c.prefill.Instance, c.decode.Instance})
	p.Source = listed
	w, seen := newOnlooker(), &tried{}
	w.watch(&deps)
	p.Server = server.New(app.NewServerConfig(pairConfig(d.cfg), d.logger), deps)
	var ended error
	err = beside(ctx, p, func(base string, failed <-chan error) {
		if ended = started(ctx, p, c, failed); ended != nil {
			return
		}
		d.hold(ctx, p, w, base, model, c, seen)
		seen.prefill, seen.decode = w.places()
		if decode := p.Fleet.Engine(upstream.RoleDecode, c.decode.Name); decode != nil {
			seen.plugIn = decode.Last().PlugIn.Found()
		}
		if prefill := p.Fleet.Engine(upstream.RolePrefill, c.prefill.Name); prefill != nil {
			seen.quarantined = prefill.Quarantined()
		}
		seen.left = giveBack(ctx, p, w, model)
	})
	return seen, errors.Join(err, ended)
}

// isTaken reports whether somebody listens at an address of this host.
func isTaken(ctx context.Context, address string) bool {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		_ = listener.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}

// started waits until the program knows its instances, and their starts where they tell them, and returns why it has ended before.
func started(ctx context.Context, p *app.Proxy, c couple, failed <-chan error) error {
	var err error
	lookUntil(ctx, startingLimit, func() bool {
		select {
		case err = <-failed:
			return true
		default:
		}
		for _, e := range []*examined{c.prefill, c.decode} {
			engine := p.Fleet.Engine(e.Role, e.Name)
			if engine == nil || e.start != "" && !engine.Last().Known() {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("the program has ended: %w", err)
	}
	return nil
}

// hold holds two conversations of two turns; one of them streams. After a failure it does not continue a conversation. A turn that has
// begun runs to its end: the ticket of a leg that is cut can neither be used nor released.
func (d *doctor) hold(ctx context.Context, p *app.Proxy, w *onlooker, base, model string, c couple, seen *tried) {
	if prefill := p.Fleet.Engine(upstream.RolePrefill, c.prefill.Name); prefill != nil && provesHistory(d.cfg, model) {
		if seen.template = prefill.Last().Template.AppendOnly(ctx, model, nil, ""); seen.template == facts.No {
			return
		}
	}
	for _, stream := range []bool{true, false} {
		talk := newProbeTalk(d.cfg, base, model, stream)
		for _, second := range []bool{false, true} {
			if ctx.Err() != nil {
				return
			}
			if second {
				seen.parity = max(seen.parity, d.learnt(ctx, p, c, talk))
			}
			turn := talk.turn(ctx, w, second)
			seen.turns = append(seen.turns, turn)
			if turn.failure != "" || turn.record.Status != http.StatusOK {
				return
			}
		}
		if stream {
			d.measured(seen.turn(stream, false).pace)
		}
	}
}

// learnt waits until it is known whether /tokenize gives what prefill renders, which is learnt beside the first turn.
func (d *doctor) learnt(ctx context.Context, p *app.Proxy, c couple, talk *probeTalk) (found facts.Finding) {
	req, err := body.ParseRequest(body.Chat, talk.body(true))
	prefill, decode := p.Fleet.Engine(upstream.RolePrefill, c.prefill.Name), p.Fleet.Engine(upstream.RoleDecode, c.decode.Name)
	if err != nil || prefill == nil || decode == nil || prefill.Last().Capability.UsesIDs(body.Chat) != facts.Yes || decode.Last().Capability.UsesIDs(body.Chat) != facts.Yes {
		return facts.Unknown // nothing is learnt
	}
	shape, _ := req.FeatureSet()
	lookUntil(ctx, parityLimit, func() bool {
		found = prefill.Last().Parity.Of(req.Model(), shape)
		return found != facts.Unknown
	})
	return found
}

// giveBack releases the tickets that are left, and returns how many could not be released.
func giveBack(ctx context.Context, p *app.Proxy, w *onlooker, model string) (left int) {
	ctx = context.WithoutCancel(ctx) // it is bounded by itself, and what is pinned stays pinned for minutes
	var holders []*fleet.Incarnation
	for _, stored := range w.left() {
		p.Server.GiveUp(ctx, stored.conversation, stored.id, model)
		if engine := p.Fleet.Engine(upstream.RoleDecode, stored.decode); engine != nil {
			if holder := engine.Incarnation(stored.incarnation); holder != nil { // else its blocks went with it
				holders = append(holders, holder)
			}
		}
	}
	for _, engine := range p.Fleet.Engines(upstream.RoleDecode) {
		holders = append(holders, engine.Last())
	}
	still := 0 // looks in a row in which nothing was under way: a leg begins a moment after its ticket has left the list
	lookUntil(ctx, releaseLimit, func() bool {
		left = 0
		for _, holder := range holders {
			left = max(left, holder.Pins.Unused())
		}
		for _, prefill := range p.Fleet.Engines(upstream.RolePrefill) {
			for _, holder := range holders {
				if holder.Pins.Unused() > 0 && !prefill.Last().PairWith(holder).Releases() {
					return true // they have not met, or a release has failed
				}
			}
		}
		if still++; left > 0 || w.legs.Load() > 0 {
			still = 0
		}
		return still >= restingLooks
	})
	return left
}
