package vllmsim

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/wire"
	"carryover/upstream/zmq/kvevents"
)

// mirror is what a subscriber knows of an engine's prefix cache.
type mirror struct {
	mu      sync.Mutex // guards what follows
	held    map[uint64]kvevents.Blocks
	started int
}

func (m *mirror) Lost() { m.set(nil) }

func (m *mirror) Started() {
	m.set(map[uint64]kvevents.Blocks{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started++
}

func (m *mirror) set(held map[uint64]kvevents.Blocks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = held
}

func (m *mirror) Stored(b kvevents.Blocks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, hash := range b.Hashes {
		if m.held != nil {
			m.held[hash] = kvevents.Blocks{Root: b.Root, Extra: b.Extra}
		}
	}
}

func (m *mirror) Removed(hashes []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, hash := range hashes {
		delete(m.held, hash)
	}
}

// equals reports whether the mirror has the engine's prefix cache.
func (m *mirror) equals(e *engine.Engine) bool {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil || len(m.held) != len(e.Pool.Cached) {
		return false
	}
	for hash := range e.Pool.Cached {
		if _, held := m.held[hash]; !held {
			return false
		}
	}
	return true
}

// watch subscribes to the events of an instance.
func watch(t *testing.T, i *Instance, replays bool) *mirror {
	t.Helper()
	m := &mirror{}
	s := kvevents.Subscription{Endpoint: i.Addresses().KVEvents[0], Sink: m}
	if replays {
		s.Replay = i.Addresses().KVReplays[0]
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx) // returns the cause of the end, which is ours
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return m
}

// settles waits until a mirror has the engine's prefix cache and gets what is published next.
func (m *mirror) settles(t *testing.T, i *Instance, what string) {
	t.Helper()
	eventually(t, what, func() bool { return i.engines()[0].Events.Subscribers() > 0 && m.equals(i.engines()[0]) })
}

// said is a text completion of n ids.
func said(seed, n int) object {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 300 + (seed*31+i*7)%700
	}
	return object{"model": "sim", "prompt": ids, "max_tokens": 20, "ignore_eos": true}
}

func TestKVEvents_TellWhatIsCached(t *testing.T) {
	i := startInstance(t, func(c *Config) {
		c.Blocks, c.Adapters, c.KVEvents = 64, []string{"lora"}, KVEventsConfig{Port: -1, ReplayPort: -1, Topic: "kv"}
	})
	ask := func(seed int, more object) {
		t.Helper()
		post(t, i, wire.PathCompletions, with(said(seed, 200), more)).answers(t, http.StatusOK)
	}
	ask(1, nil)
	m := watch(t, i, true) // what was published before is replayed
	m.settles(t, i, "the first prompt")
	for seed := range 20 { // more than the cache holds
		ask(seed, nil)
		ask(seed, object{"cache_salt": fmt.Sprint("salt-", seed)})
		ask(seed, object{"model": "lora"})
	}
	m.settles(t, i, "evictions")
	i.Restart()
	m.settles(t, i, "a restart")
	ask(1, object{"cache_salt": "s"})
	m.settles(t, i, "a prompt after the restart")
	for _, b := range m.held {
		if b.Root != (b.Extra != nil) || b.Root && b.Extra[0] != "s" {
			t.Errorf("a block of a salted prompt is told with %q", b.Extra)
		}
	}
	if got := post(t, i, "/reset_prefix_cache", nil); got.body["success"] != true {
		t.Errorf("reset: %s", got.raw)
	}
	before := m.started
	ask(3, nil)
	m.settles(t, i, "a reset")
	if m.started != before+1 {
		t.Errorf("told %d times that all is cleared, want once", m.started-before)
	}
}
