package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/server/pins"
	"carryover/server/turn"
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

// continued reports whether both turns of a conversation were answered.
func (t *tried) continued(stream bool) bool {
	second := t.turn(stream, true)
	return second != nil && second.failure == "" && second.record.End.Status == http.StatusOK
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
	cfg.Routing = config.RoutingConfig{Prefill: usual.Routing.Prefill, Decode: usual.Routing.Decode, PrefillFailure: string(turn.PrefillError)}
	cfg.Release = config.ReleaseConfig{Mode: "on", BranchKeep: usual.Release.BranchKeep}
	cfg.HandBack.Mode = string(pins.HandBackOff) // a second turn is to find the ticket of the first
	cfg.Conversation.Sources, cfg.Conversation.TenantHeader, cfg.Conversation.TenantSalt = config.UsualSources(), "", false
	cfg.Timeouts.ShutdownGrace = probeGrace
	return cfg
}

// trial is a program in front of exactly one pair, and turns through it.
type trial struct {
	couple

	cfg      config.Config
	model    string
	program  *app.Proxy
	onlooker *onlooker
	seen     *tried
}

// try runs turns of a model on a pair. The error is a fault in the set-up of this process.
func try(ctx context.Context, cfg config.Config, logger *slog.Logger, c couple, model string) (*tried, error) {
	if cfg.Connector.Name == config.ConnectorLMCache && isTaken(ctx, cfg.LMCache.Listen) {
		return &tried{addressTaken: true}, nil
	}
	p, deps, err := app.NewParts(app.Configured{Config: pairConfig(cfg)}, logger)
	if err != nil {
		return nil, err
	}
	listed := &discovery.Listed{}
	listed.Replace([]upstream.Instance{c.prefill.Instance, c.decode.Instance})
	p.Sources.All = listed
	t := &trial{couple: c, cfg: cfg, model: model, program: p, onlooker: newOnlooker(), seen: &tried{}}
	t.onlooker.watch(&deps)
	p.Server = server.New(app.NewServerConfig(pairConfig(cfg), logger), deps)
	var ended error
	err = beside(ctx, p, func(base string, failed <-chan error) {
		if ended = t.started(ctx, failed); ended == nil {
			t.run(ctx, base)
		}
	})
	return t.seen, errors.Join(err, ended)
}

// run runs the turns and gives back what they leave.
func (t *trial) run(ctx context.Context, base string) {
	t.hold(ctx, base)
	seen := t.seen
	seen.prefill, seen.decode = t.onlooker.places()
	if decode := t.engine(t.decode); decode != nil {
		seen.plugIn = decode.Last().PlugIn.Found()
	}
	if prefill := t.engine(t.prefill); prefill != nil {
		seen.quarantined = prefill.Quarantined()
	}
	seen.left = t.giveBack(ctx)
}

// engine returns the engine of one of the two instances, nil if the program does not know it.
func (t *trial) engine(e *examined) *fleet.Engine { return t.program.Fleet.Engine(e.Role, e.Name) }

// isTaken reports whether somebody listens at an address of this host.
func isTaken(ctx context.Context, address string) bool {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		_ = listener.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}

// started waits until the program knows its instances, and their starts where they tell them, and returns why it has ended before.
func (t *trial) started(ctx context.Context, failed <-chan error) error {
	var err error
	lookUntil(ctx, startingLimit, func() bool {
		select {
		case err = <-failed:
			return true
		default:
		}
		for _, e := range []*examined{t.prefill, t.decode} {
			engine := t.engine(e)
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
func (t *trial) hold(ctx context.Context, base string) {
	seen := t.seen
	if prefill := t.engine(t.prefill); prefill != nil && provesHistory(t.cfg, t.model) {
		if seen.template = prefill.Last().Template.AppendOnly(ctx, t.model, nil, ""); seen.template == facts.No {
			return
		}
	}
	for _, stream := range []bool{true, false} {
		talk := newProbeTalk(t.cfg, base, t.model, stream)
		for _, second := range []bool{false, true} {
			if ctx.Err() != nil {
				return
			}
			if second {
				seen.parity = max(seen.parity, t.learnt(ctx, talk))
			}
			turn := talk.turn(ctx, t.onlooker, second)
			seen.turns = append(seen.turns, turn)
			if turn.failure != "" || turn.record.End.Status != http.StatusOK {
				return
			}
		}
	}
}

// learnt waits until it is known whether /tokenize gives what prefill renders, which is learnt beside the first turn.
func (t *trial) learnt(ctx context.Context, talk *probeTalk) (found facts.Finding) {
	req, err := body.ParseRequest(body.Chat, talk.body(true))
	prefill, decode := t.engine(t.prefill), t.engine(t.decode)
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
func (t *trial) giveBack(ctx context.Context) (left int) {
	p, w := t.program, t.onlooker
	ctx = context.WithoutCancel(ctx) // it is bounded by itself, and what is pinned stays pinned for minutes
	var holders []*fleet.Incarnation
	for _, stored := range w.left() {
		p.Server.GiveUp(ctx, stored.conversation, stored.id, t.model)
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
