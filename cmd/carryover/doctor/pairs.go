package doctor

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
)

// Bounds of the pairs that are tried.
const (
	mostPairs   = 64
	pairsAtOnce = 4
)

// couple is one pair of instances to be tried.
type couple struct{ prefill, decode *examined }

func (c couple) name() string { return pairName(&c.prefill.Instance, &c.decode.Instance) }

// couples returns at most most pairs of both lists, along the diagonals, so that each instance is in one of the first pairs.
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

// pairs examines each pair.
func (d *doctor) pairs(ctx context.Context) {
	all := len(d.prefill) * len(d.decode)
	tried := couples(d.prefill, d.decode, mostPairs)
	d.report.pairs = all
	if len(tried) < all {
		d.report.note(fmt.Sprintf("%d of %d pairs were tried; with another order of the instances others are.", len(tried), all))
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
	_ = group.Wait() // nothing returns an error
}

// pair compares what both instances have reported, and then runs turns on them.
func (d *doctor) pair(ctx context.Context, c couple) {
	if !c.prefill.answers || !c.decode.answers || c.prefill.models == nil || c.decode.models == nil {
		return // already reported
	}
	model := d.compare(c)
	if model == "" || d.options.noTurns || ctx.Err() != nil || d.report.has(c.prefill.where(), codeQuarantined) {
		return
	}
	if d.cfg.Connector.ReusesKV() && (c.prefill.start == "" || c.decode.start == "") {
		return // nothing is reused then, and what turns leave at decode could not be released
	}
	seen, err := try(ctx, d.cfg, d.logger, c, model)
	if seen != nil && seen.continued(true) {
		d.measured(seen.turn(true, false).pace)
	}
	if err != nil {
		d.report.found(c.name(), codeTurnFailed, err.Error(), "{instance}", c.prefill.Name)
		return
	}
	d.report.sent(len(seen.turns))
	if ctx.Err() == nil {
		d.judge(c, model, seen)
	}
}

// connectorsApart says which versions of NIXL's connector two versions of vLLM have, "" where it is one, or not known.
func connectorsApart(prefill, decode string) string {
	there, known := upstream.ReleaseOf(prefill)
	here, too := upstream.ReleaseOf(decode)
	if !known || !too || there.Connector == here.Connector {
		return ""
	}
	return fmt.Sprintf(", with versions %d and %d of NIXL's connector", there.Connector, here.Connector)
}

// compare examines what the two have told of themselves, and returns a model that both serve, "" if there is none.
func (d *doctor) compare(c couple) (model string) {
	p, q, r, at := c.prefill, c.decode, d.report, c.name()
	i := slices.IndexFunc(p.models, func(m string) bool { return slices.Contains(q.models, m) })
	if i < 0 {
		r.found(at, codeNoCommonModel, fmt.Sprintf("prefill serves %q, decode %q", p.models, q.models))
		return ""
	}
	model = p.models[i]
	r.holds(at, codeNoCommonModel, "")
	if !d.cfg.Connector.ReusesKV() { // what follows is NIXL's
		return model
	}
	what := ""
	if there, here := p.roots[model], q.roots[model]; there != here {
		what = fmt.Sprintf("%s is %q on prefill and %q on decode", model, there, here)
	}
	r.check(at, codeModelPaths, what, "{root}", shellWord("{root}", p.roots[model]), "{decode}", q.Name)
	what = ""
	if p.version != "" && q.version != "" && p.version != q.version {
		what = fmt.Sprintf("prefill runs %s, decode %s%s", p.version, q.version, connectorsApart(p.version, q.version))
	}
	r.check(at, codeVersions, what, "{version}", shellWord("{version}", max(p.version, q.version)))
	if p.blockSize > 0 && q.blockSize > 0 {
		what = ""
		if p.blockSize != q.blockSize {
			what = fmt.Sprintf("%d tokens on prefill, %d on decode", p.blockSize, q.blockSize)
		}
		r.check(at, codeBlockSizes, what, "{size}", fmt.Sprint(q.blockSize))
	}
	return model
}
