package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// foundWithin is longer than any source takes to find a change on a busy machine: names are looked up every ten seconds.
const foundWithin = 20 * time.Second

// startChanging runs the program, with a listener for operators, in front of instances that come and go. It is taught how each of them reads
// prompts: a turn that learns it is no hit.
func startChanging(t *testing.T, c rigConfig) *rig {
	t.Helper()
	c.admin, c.taught = true, true
	return startRig(t, c)
}

// authority is the host:port of an instance, which is also its name unless it is given one.
func authority(instance *vllmsim.Instance) string {
	return strings.TrimPrefix(instance.URL(), "http://")
}

// names are those of the instances of a role that get turns.
func (r *rig) names(role upstream.Role) []string {
	var names []string
	for _, engine := range r.proxy.Fleet.Engines(role) {
		names = append(names, engine.Name)
	}
	slices.Sort(names)
	return names
}

// await waits until the fleet has exactly these decode instances.
func (r *rig) await(t *testing.T, decode ...*vllmsim.Instance) {
	t.Helper()
	var want []string
	for _, instance := range decode {
		want = append(want, authority(instance))
	}
	r.awaitNamed(t, want...)
}

// awaitNamed is await for instances with names of their own. It has the program taught of those that are new.
func (r *rig) awaitNamed(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !within(foundWithin, func() bool { return slices.Equal(r.names(upstream.RoleDecode), want) }) {
		t.Fatalf("decode instances %v, want %v", r.names(upstream.RoleDecode), want)
	}
	r.look()
	r.know()
}

// drains reports whether an instance was removed and still has turns.
func (r *rig) drains(instance *vllmsim.Instance) bool {
	for _, engine := range r.proxy.Fleet.Draining() {
		if engine.BaseURL == instance.URL() {
			return true
		}
	}
	return false
}

// awaitDrained waits until no instance that was removed has turns.
func (r *rig) awaitDrained(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool { return len(r.proxy.Fleet.Draining()) == 0 }) {
		t.Errorf("%d removed instances are still known after their last turn", len(r.proxy.Fleet.Draining()))
	}
}
