package keep

import (
	"context"
	"time"

	"carryover/cmd/pdbench/fleet"
)

// priceEvery is how often the price of what is pinned is worked out, of engine time. What is pinned is exact, whatever this is.
const priceEvery = 10 * time.Second

// What a pinned token costs in a second, times the size of decode's cache and in seconds that prefill computes, as docs/operating.md has it.
const (
	idlePrice   = 0.5 // where nothing is pinned
	pinnedPrice = 1.0 // the same for each share of the cache that is pinned
)

// count counts what the engines do between the end of the warm-up and the end of the run.
func (o options) count(ctx context.Context, all *fleet.Fleet, f *figures) error {
	if err := o.clock.Sleep(ctx, o.warm); err != nil {
		return err
	}
	before, err := all.Count(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	last := make([]pinned, len(all.Decode))
	for i, e := range all.Decode {
		if last[i], err = pinnedBy(ctx, e); err != nil {
			return err
		}
	}
	for o.clock.Engine(time.Since(began)) < o.long {
		if err := o.clock.Sleep(ctx, min(priceEvery, o.long-o.clock.Engine(time.Since(began)))); err != nil {
			return err
		}
		for i, e := range all.Decode {
			now, err := pinnedBy(ctx, e)
			if err != nil {
				return err
			}
			f.pin(now.tokenSeconds-last[i].tokenSeconds, o.clock.Engine(now.at.Sub(last[i].at)))
			last[i] = now
		}
	}
	after, err := all.Count(ctx)
	f.counted = after.Since(before)
	return err
}

// pinned is what an engine's pins had held until a time.
type pinned struct {
	at           time.Time
	tokenSeconds float64
}

func pinnedBy(ctx context.Context, e *fleet.Engine) (pinned, error) {
	s, err := e.Stats(ctx)
	return pinned{time.Now(), float64(s.PinnedTokenSeconds)}, err
}
