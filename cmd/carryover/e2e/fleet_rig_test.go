package e2e

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// changing is the whole program in front of instances that come and go, with its listener for operators.
type changing struct {
	*rig
	proxy     *app.Proxy
	operators string // base URL of the admin listener
}

// foundWithin is longer than any source takes to find a change on a busy machine: names are looked up every ten seconds.
const foundWithin = 20 * time.Second

// startChanging runs the program in front of instances that it finds by itself. It is taught how each of
// them reads prompts: a turn that learns it is no hit.
func startChanging(t *testing.T, c rigConfig) *changing {
	t.Helper()
	g := &changing{}
	wire := c.wire
	c.wire = func(cfg config.Config, p *app.Proxy) {
		g.proxy = p
		if wire != nil {
			wire(cfg, p)
		}
		listener, err := app.OpenAdmin(t.Context(), config.AdminConfig{Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		g.operators = "http://" + listener.Addr().String()
		p.Alongside = append(p.Alongside, func(ctx context.Context) error {
			return p.ServeAdmin(ctx, listener, "", nil, slog.New(slog.DiscardHandler))
		})
	}
	c.taught = true
	g.rig = startRig(t, c)
	return g
}

// authority is the host:port of an instance, which is also its name unless it is given one.
func authority(instance *vllmsim.Instance) string {
	return strings.TrimPrefix(instance.URL(), "http://")
}

// names are those of the instances of a role that get turns.
func (g *changing) names(role upstream.Role) []string {
	var names []string
	for _, engine := range g.proxy.Fleet.Engines(role) {
		names = append(names, engine.Name)
	}
	slices.Sort(names)
	return names
}

// await waits until the fleet has exactly these decode instances.
func (g *changing) await(t *testing.T, decode ...*vllmsim.Instance) {
	t.Helper()
	var want []string
	for _, instance := range decode {
		want = append(want, authority(instance))
	}
	g.awaitNamed(t, want...)
}

// awaitNamed is await for instances with names of their own. It has the program taught of those that are new.
func (g *changing) awaitNamed(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !within(foundWithin, func() bool { return slices.Equal(g.names(upstream.RoleDecode), want) }) {
		t.Fatalf("decode instances %v, want %v", g.names(upstream.RoleDecode), want)
	}
	g.look()
	g.know()
}

// drains reports whether an instance was removed and still has turns.
func (g *changing) drains(instance *vllmsim.Instance) bool {
	for _, engine := range g.proxy.Fleet.Draining() {
		if engine.BaseURL == instance.URL() {
			return true
		}
	}
	return false
}

// awaitDrained waits until no instance that was removed has turns.
func (g *changing) awaitDrained(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool { return len(g.proxy.Fleet.Draining()) == 0 }) {
		t.Errorf("%d removed instances are still known after their last turn", len(g.proxy.Fleet.Draining()))
	}
}
