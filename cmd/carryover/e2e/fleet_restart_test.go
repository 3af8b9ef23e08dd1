package e2e

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

func TestFleet_RestartedDecodeInstanceLosesAllItsTickets(t *testing.T) {
	t.Parallel()
	cfg := vllmsim.DefaultConfig()
	g := startChanging(t, rigConfig{cfg: cfg, prefills: 2, decodes: 2})
	var threads []*thread
	on := map[*thread]*vllmsim.Instance{}
	for _, id := range []string{"a", "b", "c", "d"} {
		h := g.thread(id)
		where := h.turn(t, "first_turn").Leg(upstream.RoleDecode).Instance
		for _, instance := range g.decode {
			if authority(instance) == where {
				on[h] = instance
			}
		}
		threads = append(threads, h)
	}
	restarted := on[threads[0]]
	restarted.Restart()
	g.hangUp()
	g.look() // as the prober would, within seconds
	for _, h := range threads {
		reuse := hit
		if on[h] == restarted {
			reuse = "instance_gone"
		}
		h.turn(t, reuse)
		h.turn(t, hit)
	}
	total := g.sum(t, "")
	for _, name := range []string{"stale_reads", "load_failures"} {
		if total[name] != 0 {
			t.Errorf("%s: got %d, want 0", name, total[name])
		}
	}
	lost := 0
	for _, instance := range on {
		if instance == restarted {
			lost++
		}
	}
	if lost == 0 || lost == len(threads) {
		t.Errorf("%d of %d conversations were on the instance that was restarted: nothing was compared", lost, len(threads))
	}
	g.verify(t, pins{unused: -lost})
}
