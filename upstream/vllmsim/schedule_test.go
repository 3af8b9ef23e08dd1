package vllmsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/connector"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/wire"
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

func wantLoad(t *testing.T, i *Instance, running, capacity, deferred int) {
	t.Helper()
	got := gauges(t, i, 0, "num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason")
	for name, want := range map[string]int{
		"num_requests_running": running, "num_requests_waiting": capacity + deferred,
		`num_requests_waiting_by_reason,reason="capacity"`: capacity, `num_requests_waiting_by_reason,reason="deferred"`: deferred,
	} {
		if got[name] != fmt.Sprintf("%d.0", want) {
			t.Errorf("%s is %s, want %d", name, got[name], want)
		}
	}
}

// asks is a request whose prompt has a length of its own, so that the counters tell which request was let in.
func asks(length int) object {
	return object{"model": "sim", "prompt": make([]int, length), "ignore_eos": true}
}

func TestMaxNumSeqs_TheRestWaitInOrder(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.MaxNumSeqs, c.Timing.InterToken = 1, time.Hour })
	takeBack := map[int]func() error{}
	for n, length := range []int{1, 20, 300, 4000} {
		takeBack[length] = begin(t, i, wire.PathCompletions, asks(length))
		eventually(t, "the request is there", func() bool { s := i.Stats(); return s.Running == n+1 && s.Waiting == n && s.GeneratedTokens == 1 })
	}
	wantLoad(t, i, 1, 3, 0)
	for _, step := range []struct{ leaves, prompts, running, waiting int }{
		{300, 1, 1, 2},   // from the middle of the queue
		{1, 21, 1, 1},    // the next in order is let in
		{20, 4021, 1, 0}, // and the last
		{4000, 4021, 0, 0},
	} {
		if err := takeBack[step.leaves](); err == nil {
			t.Fatalf("the request of %d tokens was answered", step.leaves)
		}
		eventually(t, fmt.Sprintf("%+v", step), func() bool {
			s := i.Stats()
			return s.PromptTokens == step.prompts && s.Waiting == step.waiting && s.Running == step.running+step.waiting
		})
		wantLoad(t, i, step.running, step.waiting, 0)
	}
	if s := i.Stats(); s.FreeBlocks != i.config().Blocks || s.Aborts != 4 {
		t.Errorf("%d blocks free, %d aborts; want all and 4", s.FreeBlocks, s.Aborts)
	}
}

func TestWaiting_ForBlocksHoldsUpThoseBehind(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.Blocks, c.Timing.InterToken = 10, time.Hour })
	first := begin(t, i, wire.PathCompletions, asks(100)) // seven blocks
	eventually(t, "the first runs", func() bool { return i.Stats().GeneratedTokens == 1 })
	second := begin(t, i, wire.PathCompletions, with(asks(1), object{"prompt": slices.Repeat([]int{7}, 100)})) // seven others
	eventually(t, "the second waits", func() bool { return i.Stats().Waiting == 1 })
	third := begin(t, i, wire.PathCompletions, with(asks(1), object{"prompt": []int{5}})) // one, which would be free
	eventually(t, "the third waits", func() bool { return i.Stats().Waiting == 2 })
	wantLoad(t, i, 1, 2, 0)
	_ = first()
	eventually(t, "both run", func() bool { s := i.Stats(); return s.Waiting == 0 && s.Running == 2 && s.GeneratedTokens == 3 })
	_, _ = second(), third()
}

func TestWaiting_EndsWithTheEngine(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.MaxNumSeqs, c.Timing.InterToken = 1, time.Hour })
	first := begin(t, i, wire.PathCompletions, asks(10))
	eventually(t, "the first runs", func() bool { return i.Stats().GeneratedTokens == 1 })
	second := begin(t, i, wire.PathCompletions, asks(10))
	eventually(t, "the second waits", func() bool { return i.Stats().Waiting == 1 })
	i.Restart()
	if first() == nil || second() == nil {
		t.Error("a request outlived the engine")
	}
	if got := post(t, i, wire.PathCompletions, with(asks(10), object{"max_tokens": 1})); got.status != http.StatusOK {
		t.Errorf("after the restart: %d", got.status)
	}
	wantLoad(t, i, 0, 0, 0)
}

// inEngine runs f with the engine of an instance that is never served, under a clock that only waiting moves.
func inEngine(t *testing.T, change func(*Config), f func(t *testing.T, e *engine.Engine)) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		change(&cfg)
		tok, err := bpe.New()
		if err != nil {
			t.Fatal(err)
		}
		var live atomic.Pointer[Config]
		live.Store(&cfg)
		e := engine.New(&live, 0, 0, tok, engine.NewClock(cfg.TimeScale), connector.New)
		defer e.Stop(engine.ErrRestarted)
		f(t, e)
	})
}

// prompted is a request of so many tokens, which no other prompt begins with.
func prompted(first int32, length int) *engine.Request {
	ids := make([]int32, length)
	ids[0] = first
	return &engine.Request{Prompt: ids, Computed: ids, Sampling: engine.Sampling{MaxTokens: 1}, Simulated: engine.Simulated{Slowness: 1}}
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

func TestSlow_StretchesTheWork(t *testing.T) {
	timing := Timing{PrefillPerToken: time.Millisecond, InterToken: 3 * time.Millisecond, Overhead: 7 * time.Millisecond}
	for name, change := range map[string]func(*Config, *engine.Request){
		"instance": func(c *Config, _ *engine.Request) { c.Slowness = 4 },
		"request":  func(_ *Config, r *engine.Request) { r.Slowness = 4 },
		"both":     func(c *Config, r *engine.Request) { c.Slowness, r.Slowness = 2, 2 },
	} {
		t.Run(name, func(t *testing.T) {
			req := prompted(1, 100)
			req.MaxTokens, req.IgnoreEOS = 2, true
			inEngine(t, func(c *Config) { c.Timing = timing; change(c, req) }, func(t *testing.T, e *engine.Engine) {
				begun := time.Now()
				r, err := e.Start(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if _, err := r.Next(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if took, want := time.Since(begun), 4*(7+100+3)*time.Millisecond; took != want {
					t.Errorf("took %v, want %v", took, want)
				}
			})
		})
	}
}
