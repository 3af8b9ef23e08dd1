package vllmsim

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/connector"
	"carryover/upstream/vllmsim/engine"
)

// gauges returns the samples of the metrics whose name and labels begin with one of names, engine and model left out.
func gauges(t *testing.T, i *Instance, rank int, names ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	labels := fmt.Sprintf(`engine="%d",model_name=%q`, rank, i.config().Model)
	for line := range strings.Lines(string(get(t, i, "/metrics").raw)) {
		for _, name := range names {
			if rest, ok := strings.CutPrefix(line, "vllm:"+name+"{"+labels); ok {
				label, value, _ := strings.Cut(strings.TrimSpace(rest), "} ")
				found[name+label] = value
			}
		}
	}
	return found
}

// inEngine runs f with the engine of an instance that is never served, under a clock that only waiting moves.
func inEngine(t *testing.T, change func(*Config), f func(t *testing.T, e *engine.Engine)) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		change(&cfg)
		var live atomic.Pointer[Config]
		live.Store(&cfg)
		e := engine.New(&live, 0, 0, bpe.New(), engine.NewClock(cfg.TimeScale), connector.New)
		defer e.Stop(engine.ErrRestarted)
		f(t, e)
	})
}

// prompted is a request of so many tokens, which no other prompt begins with.
func prompted(first int32, length int) *engine.Request {
	ids := make([]int32, length)
	ids[0] = first
	return &engine.Request{Prompt: ids, Computed: ids, MaxTokens: 1, Slowness: 1}
}

func TestPrompts_ShareTheSpeedOfTheEngine(t *testing.T) {
	type prompt struct {
		at     time.Duration // when it comes
		tokens int
		ends   time.Duration
	}
	const ms = time.Millisecond
	for name, prompts := range map[string][]prompt{
		"alone":          {{0, 100, 100 * ms}},
		"in order":       {{0, 100, 100 * ms}, {1 * ms, 50, 150 * ms}, {2 * ms, 10, 160 * ms}},
		"with a pause":   {{0, 100, 100 * ms}, {500 * ms, 200, 700 * ms}},
		"in the middle":  {{0, 100, 100 * ms}, {40 * ms, 100, 200 * ms}, {150 * ms, 100, 300 * ms}},
		"beyond a lease": {{0, 100_000, 100_000 * ms}, {1 * ms, 50, 100_050 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			inEngine(t, func(c *Config) { c.Timing.PrefillPerToken = ms }, func(t *testing.T, e *engine.Engine) {
				begun := time.Now()
				var wg sync.WaitGroup
				for n, p := range prompts {
					wg.Go(func() {
						<-time.After(p.at)
						r, err := e.Start(t.Context(), prompted(int32(n), p.tokens))
						if took := time.Since(begun); err != nil || took != p.ends {
							t.Errorf("prompt %d: computed after %v (%v), want %v", n, took, err, p.ends)
							return
						}
						r.Abort()
					})
				}
				wg.Wait()
			})
		})
	}
}
