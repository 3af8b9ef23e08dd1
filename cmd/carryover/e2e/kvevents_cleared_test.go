package e2e

import (
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/server"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// heardCleared reports whether the program has heard that decode instance i has cleared its cache, for the first time.
func (p *publishing) heardCleared(i int) bool {
	return p.proxy.Fleet.Engine(upstream.RoleDecode, authority(p.decode[i])).Last().Pins.Free(time.Time{})
}

func TestKVEvents_ClearedBlocksAreNotRead(t *testing.T) {
	t.Parallel()
	for _, proof := range []server.ProofMode{server.ProofAuto, server.ProofHistory} {
		for _, encoding := range []string{vllmsim.EncodingMap, vllmsim.EncodingArray} {
			t.Run(string(proof)+"/"+encoding, func(t *testing.T) {
				t.Parallel()
				p := startPublishing(t, 1, 1, rigConfig{flags: []string{"--proof", string(proof)}}, func(_ string, _ int, cfg *vllmsim.Config) {
					cfg.KVEvents.Encoding = encoding
				})
				h := p.thread("a")
				h.turn(t, "first_turn")
				unused := 0
				if !h.turn(t, whatever).Reuse.Hit { // it learns, and displaces a ticket whose blocks decode then clears
					unused--
				}
				h.turn(t, hit)
				p.decode[0].ClearBlocks()
				if !testrig.Eventually(func() bool { return p.heardCleared(0) }) {
					t.Fatal("the program has not heard that decode has cleared its cache")
				}
				h.turn(t, "instance_cleared")
				// Tickets of the next two seconds are not used either, because clocks of replicas differ. They stay pinned, as they
				// would not with releases.
				if !within(foundWithin, func() bool {
					again := h.turn(t, whatever)
					if again.Reuse.Reason == record.ReasonInstanceCleared {
						unused++
					}
					return again.Reuse.Hit
				}) {
					t.Error("no ticket is used any more")
				}
				h.turn(t, hit)
				p.verify(t, pins{unused: unused})
			})
		}
	}
}

// Of two decode instances one clears its cache, and the conversations of the other go on.
func TestKVEvents_OneInstanceIsCleared(t *testing.T) {
	t.Parallel()
	p := startPublishing(t, 1, 2, rigConfig{flags: []string{"--proof", "history"}}, nil)
	on := map[string][]*thread{}
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		h := p.thread(id)
		on[h.turn(t, "first_turn").Leg(upstream.RoleDecode).Instance] = append(on[h.turn(t, hit).Leg(upstream.RoleDecode).Instance], h)
	}
	if len(on) != 2 {
		t.Fatalf("conversations on %d instances, want two", len(on))
	}
	p.decode[0].ClearBlocks()
	if !testrig.Eventually(func() bool { return p.heardCleared(0) }) {
		t.Fatal("the program has not heard that decode has cleared its cache")
	}
	for name, threads := range on {
		for _, h := range threads {
			if name == authority(p.decode[0]) {
				h.turn(t, "instance_cleared")
			} else {
				h.turn(t, hit)
			}
		}
	}
	p.verify(t, pins{})
}

// An engine that restarts publishes anew, and what it clears then is heard too.
func TestKVEvents_AfterARestart(t *testing.T) {
	t.Parallel()
	p := startPublishing(t, 1, 1, rigConfig{flags: []string{"--proof", "history"}}, nil)
	h := p.thread("a")
	h.turn(t, "first_turn")
	h.turn(t, hit)
	p.decode[0].Restart()
	p.hangUp()
	p.look()
	h.turn(t, "instance_gone")
	h.turn(t, hit)
	p.decode[0].ClearBlocks()
	if !within(foundWithin, func() bool { return p.heardCleared(0) }) {
		t.Fatal("the program has not heard that decode has cleared its cache")
	}
	h.turn(t, "instance_cleared")
	p.verify(t, pins{})
}

// Every replica hears the engines by itself, and refuses the tickets that others have put.
func TestKVEvents_TicketsOfOtherReplicas(t *testing.T) {
	t.Parallel()
	shared := rigConfig{env: []string{testrig.ReplicaSecret}, flags: []string{"--proof", "history", "--redis-url", "redis://" + redistest.Start(t).Addr()}}
	first := startPublishing(t, 1, 1, shared, nil)
	second := &publishing{}
	second.rig = startRig(t, rigConfig{env: shared.env, flags: strings.Fields(first.args), wire: func(_ config.Config, p *app.Proxy) { second.proxy = p }})
	second.prefill, second.decode = first.prefill, first.decode
	h := first.thread("a")
	h.turn(t, "first_turn")
	h.rig = second.rig
	h.turn(t, hit)
	h.rig = first.rig
	h.turn(t, hit)
	first.decode[0].ClearBlocks()
	if !within(foundWithin, func() bool { return first.heardCleared(0) && second.heardCleared(0) }) {
		t.Fatal("a replica has not heard that decode has cleared its cache")
	}
	h.rig = second.rig
	h.turn(t, "instance_cleared")
	first.stop()
	second.verify(t, pins{unused: -1}) // the first replica has taken the ticket of the second turn
}

// A replica that starts, or starts anew, is told by a replay what engines have cleared long ago. The tickets of others from since then
// live.
func TestKVEvents_AReplicaThatStartsVoidsNoLiveTickets(t *testing.T) {
	t.Parallel()
	shared := rigConfig{env: []string{testrig.ReplicaSecret}, flags: []string{"--proof", "history", "--redis-url", "redis://" + redistest.Start(t).Addr()}}
	first := startPublishing(t, 1, 1, shared, nil)
	h := first.thread("a")
	h.turn(t, "first_turn")
	first.decode[0].ClearBlocks()
	if !testrig.Eventually(func() bool { return first.heardCleared(0) }) {
		t.Fatal("the program has not heard that decode has cleared its cache")
	}
	lost := 1
	if !within(foundWithin, func() bool { // tickets of the next two seconds are not used either
		again := h.turn(t, whatever)
		if again.Reuse.Reason == record.ReasonInstanceCleared {
			lost++
		}
		return again.Reuse.Hit
	}) {
		t.Fatal("no ticket is used any more")
	}
	second := &publishing{}
	second.rig = startRig(t, rigConfig{env: shared.env, flags: strings.Fields(first.args), wire: func(_ config.Config, p *app.Proxy) { second.proxy = p }})
	second.prefill, second.decode = first.prefill, first.decode
	if !testrig.Eventually(func() bool { return second.heardCleared(0) }) {
		t.Fatal("the second replica was not told what decode has cleared")
	}
	h.rig = second.rig
	h.turn(t, hit)
	h.turn(t, hit)
	first.stop()
	second.verify(t, pins{unused: lost - 2})
}
