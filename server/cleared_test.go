package server_test

import (
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

func TestCleared_TicketsFromBeforeAreNotUsed(t *testing.T) {
	proofs(t, func(t *testing.T, r *rig, turn func(n int) reply) {
		r.wantOK(turn(1), "miss;")
		r.wantOK(turn(2), "hit;")
		r.engine(r.decode[0]).BlocksCleared(time.Now())
		r.wantOK(turn(3), "miss;reason=instance_cleared")
		r.wantStored(3, "yes")
	}, setup{})
}

func TestCleared_TicketsFromAfterAreUsed(t *testing.T) {
	proofs(t, func(t *testing.T, r *rig, turn func(n int) reply) {
		r.engine(r.decode[0]).BlocksCleared(time.Now().Add(-time.Minute))
		r.wantOK(turn(1), "miss;")
		r.wantOK(turn(2), "hit;")
	}, setup{})
}

// Of two instances only the one that was cleared has lost its blocks.
func TestCleared_ConcernsOneInstance(t *testing.T) {
	proofs(t, func(t *testing.T, r *rig, turn func(n int) reply) {
		r.wantOK(turn(1), "miss;")
		r.engine(r.decode[1]).BlocksCleared(time.Now())
		r.wantOK(turn(2), "hit;")
	}, setup{decodes: 2})
}

// picked picks the first instance and calls a function.
type picked struct {
	inOrder
	then func()
}

func (p *picked) Pick(candidates []upstream.Candidate, key string) int {
	p.then()
	return p.inOrder.Pick(candidates, key)
}

// The event may come when an instance has been picked for the conversation's tickets.
func TestCleared_BehindTheLook(t *testing.T) {
	policy := &picked{}
	proofs(t, func(t *testing.T, r *rig, turn func(n int) reply) {
		policy.then = func() {}
		r.wantOK(turn(1), "miss;")
		decode := r.engine(r.decode[0])
		policy.then = func() { decode.BlocksCleared(time.Now()) }
		r.wantOK(turn(2), "miss;reason=instance_cleared")
	}, setup{fleet: func(c *fleet.Config) { c.Prefill = policy }})
}

// What was pinned is free: it is no part of the budget, and nothing of it is released.
func TestCleared_NothingIsPinnedAnyMore(t *testing.T) {
	t.Parallel()
	p := newPinning(t, nil)
	p.turn("a")
	p.turn("b")
	if n := p.server.Pinned(p.decoder()); n == 0 {
		t.Fatal("two tickets pin no tokens")
	}
	p.decoder().BlocksCleared(time.Now())
	p.until(func() bool { return p.server.Pinned(p.decoder()) == 0 })
	if got := p.turn("a").reuse(); got != "prefix;tokens=112;reason=instance_cleared" {
		t.Errorf("reuse: %s", got)
	}
	if n := p.decoder().Last().Pins.Unused(); n != 0 {
		t.Errorf("%d tickets wait for their release", n)
	}
}
