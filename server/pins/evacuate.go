package pins

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream/fleet"
)

// evacuation frees the blocks that this replica's tickets pin on decode engines that leave, because an operator drains them or a source has
// removed them. Until the last ticket is read or released, POST /pause and /sleep of such an engine do not answer, and its shutdown waits
// (measured on vLLM 0.33); if the tickets had to expire, that would take minutes. Tickets are handed back if that is possible within
// handBackWithin; the others are released.
type evacuation struct {
	cfg       *Config
	deps      *Deps
	ledger    *Ledger
	releases  *Releases
	handBacks *HandBacks

	began map[*fleet.Incarnation]time.Time // when each engine was first seen leaving; only one goroutine uses it
}

func newEvacuation(cfg *Config, deps *Deps, ledger *Ledger, releases *Releases, handBacks *HandBacks) *evacuation {
	return &evacuation{cfg: cfg, deps: deps, ledger: ledger, releases: releases, handBacks: handBacks, began: map[*fleet.Incarnation]time.Time{}}
}

const (
	// evacuateEvery is how often the engines are checked for ones that leave. A round that finds none takes some microseconds.
	evacuateEvery = 250 * time.Millisecond
	// handBackWithin is how long an engine that leaves waits for hand-backs. One leg takes 0.04 to 0.3 s (measured on vLLM 0.32), and each
	// pair runs one at a time.
	handBackWithin = 3 * time.Second
)

// round gives up the tickets on the engines that leave.
func (v *evacuation) round(ctx context.Context) {
	leaving := map[*fleet.Incarnation]bool{}
	for _, engine := range v.deps.Fleet.Holders.All() {
		if engine.Leaves() && engine.Last().Known() {
			leaving[engine.Last()] = true
		}
	}
	for incarnation := range v.began {
		if !leaving[incarnation] {
			delete(v.began, incarnation)
		}
	}
	if len(leaving) == 0 {
		return
	}
	for _, of := range v.ledger.all(time.Now()) {
		if leaving[of.incarnation] {
			v.empty(ctx, of)
		}
	}
	v.releases.workOff(ctx)
}

// empty takes the tickets of an incarnation out of the store, which gives each to one taker, and hands them back or has them released at once.
func (v *evacuation) empty(ctx context.Context, of *pinned) {
	since, known := v.began[of.incarnation]
	if !known {
		since = time.Now()
		v.began[of.incarnation] = since
	}
	late := time.Since(since) >= handBackWithin
	tickets := 0
	for ctx.Err() == nil && of.incarnation.Pins.Unused() < maxLeaving {
		p, more := v.ledger.next(of, 0)
		if !more {
			break
		}
		if v.handBacks.takeOut(ctx, p, !late, record.ReasonInstanceGone) == convcache.Unavailable {
			break // the next ones wait until the store answers
		}
		tickets++
	}
	if late {
		v.handBacks.queues.give(of.incarnation)
	}
	of.incarnation.Pins.Hurry()
	if tickets > 0 {
		v.cfg.Logger.Info("gave up the tickets of a decode instance that leaves", "decode", of.incarnation.Engine().Name, "tickets", tickets)
	}
}
