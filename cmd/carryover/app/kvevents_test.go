package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/vllmsim"
)

// following is subscriptions to instances that a test has come and go.
type following struct {
	*kvEvents
	prefill []*vllmsim.Instance
}

func startFollowing(t *testing.T, cfg config.KVEventsConfig, n int) *following {
	t.Helper()
	client := upstream.NewClient(upstream.ClientConfig{})
	t.Cleanup(client.Close)
	f := &following{kvEvents: newKVEvents(cfg, fleet.New(fleet.Config{Client: client}), slog.New(slog.DiscardHandler))}
	for range n {
		sim := vllmsim.DefaultConfig()
		sim.KVEvents = vllmsim.KVEventsConfig{Port: -1, ReplayPort: -1, Topic: "kv-events"}
		f.prefill = append(f.prefill, testrig.StartInstance(t, sim, ""))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.run(ctx) // returns nil
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return f
}

// has the fleet have these instances.
func (f *following) has(t *testing.T, change func(*upstream.Instance), instances ...*vllmsim.Instance) {
	t.Helper()
	var all []upstream.Instance
	for _, sim := range instances {
		instance, err := upstream.NewInstance(upstream.RolePrefill, "", sim.URL())
		must(t, err)
		instance.KVEvents = sim.Addresses().KVEvents[0]
		if change != nil {
			change(&instance)
		}
		all = append(all, instance)
	}
	f.fleet.Set(all)
	f.follow()
}

// engine is what the fleet knows of an instance, nil if it is no part of it.
func (f *following) engine(sim *vllmsim.Instance) *fleet.Engine {
	return f.fleet.Engine(upstream.RolePrefill, strings.TrimPrefix(sim.URL(), "http://"))
}

// hears reports whether an instance that clears its cache is heard within a while.
func (f *following) hears(sim *vllmsim.Instance) bool {
	if engine := f.engine(sim); engine != nil {
		engine.Cache.Lost()
	}
	return testrig.Eventually(func() bool {
		sim.ClearBlocks() // what is published before the subscription is there is not heard
		engine := f.engine(sim)
		return engine != nil && engine.Cache.Count() >= 0
	})
}

func TestKVEvents_FollowInstancesAsTheyComeAndGo(t *testing.T) {
	t.Parallel()
	f := startFollowing(t, config.KVEventsConfig{}, 3)
	a, b, c := f.prefill[0], f.prefill[1], f.prefill[2]
	f.has(t, nil, a)
	if !f.hears(a) {
		t.Error("the first instance is not heard")
	}
	f.has(t, nil, b, c)
	if !f.hears(b) || !f.hears(c) {
		t.Error("instances that have come are not heard")
	}
	f.has(t, nil)
	f.has(t, nil, a, b)
	if !f.hears(a) || !f.hears(b) {
		t.Error("instances that are back are not heard")
	}
	f.has(t, func(i *upstream.Instance) { i.Weight = 2 }, a)
	if !f.hears(a) {
		t.Error("an instance that was configured differently is not heard")
	}
	f.has(t, func(i *upstream.Instance) { i.KVEvents, i.Weight = "tcp://nowhere", 3 }, a) // which the log says
	f.has(t, func(i *upstream.Instance) { i.Weight = 4 }, a)
	if !f.hears(a) {
		t.Error("an instance is not heard behind an endpoint that was none")
	}
}

func TestKVEvents_Endpoints(t *testing.T) {
	instance := upstream.Instance{BaseURL: "http://[::1]:8000", Rank: 2, Ranked: true}
	named := instance
	named.KVEvents = "tcp://10.0.0.1:7000"
	for _, row := range []struct {
		cfg        config.KVEventsConfig
		instance   upstream.Instance
		at, replay string
	}{
		{config.KVEventsConfig{}, instance, "", ""},
		{config.KVEventsConfig{Port: 5557}, instance, "tcp://[::1]:5559", ""},
		{config.KVEventsConfig{Port: 5557, ReplayPort: 6557}, instance, "tcp://[::1]:5559", "tcp://[::1]:6559"},
		{config.KVEventsConfig{}, named, "tcp://10.0.0.1:7000", ""},
		{config.KVEventsConfig{Port: 5557, ReplayPort: 6557}, named, "tcp://10.0.0.1:7000", "tcp://10.0.0.1:6559"},
	} {
		e := newKVEvents(row.cfg, nil, nil)
		if at, replay := e.endpoints(&row.instance); at != row.at || replay != row.replay {
			t.Errorf("%+v of %s: got %q and %q, want %q and %q", row.cfg, row.instance.KVEvents, at, replay, row.at, row.replay)
		}
	}
}
