package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/discovery"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

const (
	mostPairs     = 64
	pairsAtOnce   = 4
	releaseLimit  = 5 * time.Second
	parityLimit   = 3 * time.Second // for /tokenize beside a turn
	probeGrace    = 2 * time.Second // for turns in flight at the end; there are none
	startingLimit = 5 * time.Second
)

type couple struct{ prefill, decode *examined }

func (c couple) name() string { return c.prefill.Name + " -> " + c.decode.Name }

// couples returns at most most pairs, along the diagonals, so that the first pairs contain each instance.
func couples(prefill, decode []*examined, most int) (all []couple) {
	for round := range min(len(prefill), len(decode)) {
		for i := range max(len(prefill), len(decode)) {
			p, q := i, i+round
			if len(prefill) < len(decode) {
				p, q = q, p
			}
			if len(all) == most {
				return all
			}
			all = append(all, couple{prefill[p%len(prefill)], decode[q%len(decode)]})
		}
	}
	return all
}

func (d *doctor) pairs(ctx context.Context) {
	all := len(d.prefill) * len(d.decode)
	tried := couples(d.prefill, d.decode, mostPairs)
	d.report.pairs = all
	if len(tried) < all {
		d.report.note(fmt.Sprintf("%d of %d pairs were tried; another order of the instances tries others.", len(tried), all))
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pairsAtOnce)
	if d.cfg.Connector.Name == config.ConnectorLMCache {
		group.SetLimit(1) // notifications come to one address
	}
	for _, c := range tried {
		d.report.place(c.name())
		group.Go(func() error {
			d.pair(ctx, c)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}

func (d *doctor) pair(ctx context.Context, c couple) {
	if c.prefill.models == nil || c.decode.models == nil {
		return // already reported
	}
	model := d.compare(c)
	if model == "" || d.options.noTurns || ctx.Err() != nil {
		return
	}
	if d.cfg.Connector.ReusesKV() && (c.prefill.start == "" || c.decode.start == "") {
		return // nothing is reused then, and the turns' blocks at decode could not be released
	}
	v := d.verdictOf(c, model, &tried{})
	if err := try(ctx, d.cfg, d.logger, c, model, v.seen); err != nil {
		v.found(codeTurnFailed, err.Error())
		return
	}
	d.tell(v.seen)
	if ctx.Err() == nil {
		v.judge()
	}
}

// compare returns a model that both serve, "" if there is none.
func (d *doctor) compare(c couple) (model string) {
	p, q, r, at := c.prefill, c.decode, d.report, c.name()
	i := slices.IndexFunc(p.models, func(m string) bool { return slices.Contains(q.models, m) })
	if i < 0 {
		r.found(at, codeNoCommonModel, fmt.Sprintf("prefill serves %q, decode %q", p.models, q.models))
		return ""
	}
	model = p.models[i]
	r.holds(at, codeNoCommonModel, "")
	sizes := func(there, here int) string {
		return problem(there == here || there == 0 || here == 0, "%d tokens on prefill, %d on decode", there, here)
	}
	r.check(at, codeLengths, sizes(p.lengths[model], q.lengths[model]), "{length}", fmt.Sprint(q.lengths[model]))
	if !d.cfg.Connector.ReusesKV() { // the rest is about NIXL
		return model
	}
	there, here := p.roots[model], q.roots[model]
	r.check(at, codeModelPaths, problem(there == here, "%s is %q on prefill and %q on decode", model, there, here),
		"{root}", shellWord("{root}", there), "{decode}", q.Name)
	r.check(at, codeVersions, problem(p.version == "" || q.version == "" || p.version == q.version, "prefill runs %s, decode %s", p.version, q.version),
		"{version}", shellWord("{version}", max(p.version, q.version)))
	r.check(at, codeBlockSizes, sizes(p.blockSize, q.blockSize), "{size}", fmt.Sprint(q.blockSize))
	return model
}

type tried struct {
	turns    []probeTurn
	otherIDs bool          // prefill computed other ids than it was sent
	parity   facts.Finding // of the turns' shape; Unknown if not learnt
	left     int           // tokens that decode holds because a release failed
}

func (t *tried) turn(stream bool, second bool) *probeTurn {
	for i := range t.turns {
		if turn := &t.turns[i]; turn.stream == stream && turn.second == second {
			return turn
		}
	}
	return nil
}

// pairConfig keeps the settings of turns, and switches off discovery and sharing.
func pairConfig(cfg config.Config) config.Config {
	usual := config.Default()
	if cfg.Connector.Name != config.ConnectorLMCache { // LMCache's notifications may come by Redis, and there are no tickets
		cfg.Redis = usual.Redis
	}
	cfg.Prefill, cfg.Decode, cfg.Discovery, cfg.KVEvents = nil, nil, usual.Discovery, usual.KVEvents
	cfg.Routing = config.RoutingConfig{Prefill: usual.Routing.Prefill, Decode: usual.Routing.Decode, PrefillFailure: string(turn.PrefillError)}
	cfg.Release = config.ReleaseConfig{Mode: "on"}
	cfg.HandBack.Mode = string(pins.HandBackOff) // the second turn has to find the ticket of the first
	cfg.Conversation.Sources, cfg.Conversation.TenantHeader, cfg.Conversation.TenantSalt = config.UsualSources(), "", false
	cfg.Timeouts.ShutdownGrace = probeGrace
	return cfg
}

// try runs turns on a pair and fills in seen. The error is a fault in this process.
func try(ctx context.Context, cfg config.Config, logger *slog.Logger, c couple, model string, seen *tried) error {
	p, deps, err := app.NewParts(app.Configured{Config: pairConfig(cfg)}, logger)
	if err != nil {
		return err
	}
	listed := &discovery.Listed{}
	listed.Replace([]upstream.Instance{c.prefill.Instance, c.decode.Instance})
	p.Sources.All = listed
	records := make(chan record.Turn, MaxProbeTurns)
	deps.Observers = append(deps.Observers, func(rec *record.Turn) { records <- *rec })
	settings := app.NewServerConfig(pairConfig(cfg), logger)
	settings.ReleaseBacklog = 0 // each ticket is released before the program ends
	p.Server = server.New(settings, deps)
	return beside(ctx, p, func(ctx context.Context, base string) {
		var prefill, decode *fleet.Engine
		command.LookUntil(ctx, startingLimit, func() bool {
			prefill, decode = p.Fleet.Engine(c.prefill.Role, c.prefill.Name), p.Fleet.Engine(c.decode.Role, c.decode.Name)
			return prefill != nil && decode != nil && (c.prefill.start == "" || prefill.Last().Known()) && (c.decode.start == "" || decode.Last().Known())
		})
		if prefill == nil || decode == nil {
			return // the program has ended
		}
		seen.hold(ctx, prefill, records, func(stream bool) *probeTalk { return newProbeTalk(cfg, base, model, stream) })
		seen.otherIDs = prefill.Quarantined()
		decode.Health.SetDrain(true) // releases all tickets, which would stay pinned for minutes, whatever has ended by now
		command.LookUntil(context.WithoutCancel(ctx), releaseLimit, func() bool {
			seen.left = p.Server.Pins.Pinned(decode)
			return seen.left == 0
		})
	})
}

// hold runs two conversations of two turns, one of them streaming. A failure ends its conversation. A turn that has begun runs to its end:
// the ticket of a cut leg can neither be used nor released.
func (t *tried) hold(ctx context.Context, prefill *fleet.Engine, records <-chan record.Turn, begin func(stream bool) *probeTalk) {
	for _, stream := range []bool{true, false} {
		talk := begin(stream)
		for _, second := range []bool{false, true} {
			if ctx.Err() != nil {
				return
			}
			if second {
				t.parity = max(t.parity, learnt(ctx, prefill, talk))
			}
			turn := talk.turn(ctx, records, second)
			t.turns = append(t.turns, turn)
			if turn.failure != "" || turn.record.Status != http.StatusOK {
				return
			}
		}
	}
}

// learnt waits for parity of the turn's shape, which the proxy learns beside the first turn.
func learnt(ctx context.Context, prefill *fleet.Engine, talk *probeTalk) (found facts.Finding) {
	req, err := body.ParseRequest(body.Chat, talk.body(true))
	if err != nil || prefill.Last().Capability.UsesIDs(body.Chat) != facts.Yes {
		return facts.Unknown // the proxy learns nothing
	}
	shape, _ := req.FeatureSet()
	command.LookUntil(ctx, parityLimit, func() bool {
		found = prefill.Last().Parity.Of(req.Model, shape)
		return found != facts.Unknown
	})
	return found
}
