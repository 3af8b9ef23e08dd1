package fleet

import (
	"testing"
	"time"

	"carryover/upstream/fleet/unused"
)

// besides returns what is pinned besides of the one decode engine, as operators are told.
func (r *rig) besides(decode *Incarnation) int { return decode.Engine().Live().Pins.Besides }

// expiringRig returns two incarnations that have exchanged KV; decode frees blocks after so long.
func expiringRig(r *rig, ttl time.Duration) (prefill, decode *Incarnation) {
	prefill, decode = r.introducedPair()
	setTTL(decode, ttl)
	return prefill, decode
}

// setTTL configures the engine of an incarnation with that TTL.
func setTTL(decode *Incarnation, ttl time.Duration) {
	instance := *decode.engine.Instance()
	instance.KVTTL = ttl
	decode.engine.settings.Store(&instance)
}

func TestExpiringPins_CountUntilDecodeFreesThem(t *testing.T) {
	const ttl = 400 * time.Second
	r := newRig(t)
	_, d := expiringRig(r, ttl)
	d.Pins.AddExpiring(100, r.now())
	r.pass(ttl / 2)
	d.Pins.AddExpiring(30, r.now())
	r.pass(ttl/2 - time.Second)
	if got := r.besides(d); got != 130 {
		t.Errorf("just before the TTL ends: got %d, want 130", got)
	}
	r.pass(time.Second + 2*ttl/unused.ExpirySteps)
	if got := r.besides(d); got != 30 {
		t.Errorf("after it: got %d, want 30", got)
	}
	d.Pins.AddExpiring(7, r.now().Add(-ttl-time.Minute))
	if got := r.besides(d); got != 30 {
		t.Errorf("with what decode has freed before: got %d, want 30", got)
	}
}

func TestExpiringPins_ATransferIsCountedOnce(t *testing.T) {
	r := newRig(t)
	p, d := expiringRig(r, time.Hour)
	u := r.left("a")
	u.Tokens, u.FreshAsOf = 50, r.now()
	want := func(what string, waits, besides int) {
		t.Helper()
		if live := d.Engine().Live(); live.Pins.Waiting != waits || live.Pins.Besides != besides {
			t.Errorf("%s: %d wait and %d besides, want %d and %d", what, live.Pins.Waiting, live.Pins.Besides, waits, besides)
		}
	}
	take := func() unused.Ticket {
		u, ok := p.TakeUnused(d, true)
		if !ok {
			t.Fatal("there is none")
		}
		return u
	}
	d.Pins.Leave(u)
	want("left", 50, 0)
	u = take()
	want("on its way", 0, 50)
	d.Pins.Leave(u)
	want("back", 50, 0)
	u = take()
	d.Pins.AddExpiring(u.Tokens, u.FreshAsOf)
	d.Pins.EndTransfer(u.Tokens)
	want("failed", 0, 50)
	d.Pins.Leave(unused.Ticket{Tokens: 20, FreshAsOf: r.now(), Deadline: r.now().Add(time.Minute)})
	r.pass(2 * time.Minute)
	want("past its time as a ticket", 0, 70)
	d.Pins.BeginTransfer(5)
	want("a ticket that was taken", 0, 75)
	d.Pins.EndTransfer(5)
	want("and read", 0, 70)
	for range unused.Max {
		d.Pins.Leave(r.left("x"))
	}
	d.Pins.Leave(unused.Ticket{Tokens: 9, FreshAsOf: r.now(), Deadline: r.now().Add(time.Minute)})
	want("for which there is no room", 0, 79)
}

// Of an incarnation that is over nothing is pinned.
func TestExpiringPins_EndWithTheIncarnation(t *testing.T) {
	r := newRig(t)
	_, d := expiringRig(r, time.Hour)
	d.Pins.AddExpiring(40, r.now())
	next := tells(d.Engine(), "2")
	d.Pins.AddExpiring(40, r.now())
	if got := r.besides(next); got != 0 {
		t.Errorf("got %d of another start, want 0", got)
	}
}
