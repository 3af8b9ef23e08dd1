package fleet

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"carryover/convcache/clocktest"
	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/fleet/unused"
)

// left is an unused ticket that decode holds for another hour.
func (r *rig) left(name string) unused.Ticket {
	return unused.Ticket{Params: []byte(name), Deadline: r.now().Add(time.Hour)}
}

// introducedPair returns two incarnations that have exchanged KV.
func (r *rig) introducedPair() (prefill, decode *Incarnation) {
	r.t.Helper()
	prefill, decode = r.incarnations()
	prefill.PairWith(decode).ExchangedKV()
	return prefill, decode
}

func wantTake(t *testing.T, prefill, decode *Incarnation, want string) {
	t.Helper()
	u, ok := prefill.TakeUnused(decode, false)
	if ok != (want != "") || string(u.Params) != want {
		t.Errorf("take for %s to start %s: got %q, %v, want %q", prefill.engine.Name, decode.ID(), u.Params, ok, want)
	}
}

func TestUnused_OldestFirstAndOnce(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	for _, name := range []string{"a", "b"} {
		d.Pins.Leave(r.left(name))
	}
	wantTake(t, p, d, "a")
	wantTake(t, p, d, "b")
	wantTake(t, p, d, "")
}

// A reading of the engine that came too late says nothing about its blocks, and neither
// does a refused connection before the next reading.
func TestUnused_WaitWhileTheIncarnationIsUnknown(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	d.Pins.Leave(r.left("a"))
	d.Engine().Refused()
	if all := r.Holders.Waiting(); len(all) != 0 {
		t.Errorf("waiting: got %d, want none of a start that may be over", len(all))
	}
	wantTake(t, p, d.Engine().Last(), "")
	r.pass(unused.ReleaseAfter)
	if all := r.Holders.Due(0); len(all) != 1 || all[0] != d {
		t.Errorf("due: got %d, want the start that was read last", len(all))
	}
	tells(d.Engine(), "1")
	if all := r.Holders.Waiting(); len(all) != 1 || all[0] != d {
		t.Errorf("waiting: got %d, want the start that is back", len(all))
	}
	wantTake(t, p, d, "a")
}

func TestUnused_NothingOfAnUnknownIncarnation(t *testing.T) {
	r := newRig(t)
	d := r.named(upstream.RoleDecode, "d")[0]
	d.Fresh().Pins.Leave(r.left("a"))
	if tells(d, "1"); d.readings.known.Pins.Unused() != 0 || len(r.Holders.Waiting()) != 0 {
		t.Error("it has a ticket")
	}
}

func TestUnused_EachOnceHoweverManyLegsAsk(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	for i := range unused.Max {
		d.Pins.Leave(r.left(fmt.Sprint(i)))
	}
	var mu sync.Mutex // guards seen
	seen := map[string]int{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for u, ok := p.TakeUnused(d, false); ok; u, ok = p.TakeUnused(d, false) {
				mu.Lock()
				seen[string(u.Params)]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(seen) != unused.Max {
		t.Errorf("got %d tickets, want %d", len(seen), unused.Max)
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s was handed out %d times", name, n)
		}
	}
}

func TestUnused_OnlyBetweenPairsThatHaveExchangedKV(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	d.Pins.Leave(r.left("a"))
	other := tells(r.named(upstream.RolePrefill, "other")[0], "1")
	wantTake(t, newIncarnation(p.Engine(), "2"), d, "")
	wantTake(t, other, d, "")
	wantTake(t, p, d, "a")
}

// An engine refused a client's request that carried it, most likely for what the client
// sent. Were it for the release, that would fail every turn that carries it.
func TestUnused_ARefusedOneIsForALegOfOurOwn(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	refused := r.left("refused")
	refused.Refused = true
	d.Pins.Leave(refused)
	d.Pins.Leave(r.left("a"))
	wantTake(t, p, d, "a")
	wantTake(t, p, d, "")
	if u, ok := p.TakeUnused(d, true); !ok || string(u.Params) != "refused" || !u.Refused {
		t.Errorf("own: got %q, %v, want the refused one", u.Params, ok)
	}
}

func TestUnused_DroppedWhenDecodeHasRestarted(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	d.Pins.Leave(r.left("of the first start"))
	next := tells(d.Engine(), "2")
	p.PairWith(next).ExchangedKV()
	d.Pins.Leave(r.left("of the first start, late"))
	next.Pins.Leave(r.left("of the second"))
	wantTake(t, p, next, "of the second")
	wantTake(t, p, next, "")
	p.PairWith(d).ExchangedKV()
	wantTake(t, p, d, "")
}

func TestUnused_DroppedWithTheEngine(t *testing.T) {
	r := newRig(t)
	_, d := r.introducedPair()
	d.Pins.Leave(r.left("a"))
	r.Set(nil)
	if d.Pins.Leave(r.left("late")); len(r.Holders.Waiting()) != 1 || d.Pins.Unused() != 2 {
		t.Errorf("waiting: %d starts, and %d tickets of one whose engine was removed, want it and both", len(r.Holders.Waiting()), d.Pins.Unused())
	}
	r.pass(unsetKVTTL)
	r.Set(nil)
	if d.Pins.Leave(r.left("too late")); len(r.Holders.Waiting()) != 0 || d.Pins.Unused() != 2 {
		t.Errorf("waiting: %d starts, and %d tickets of one whose engine is forgotten, want none and those of before", len(r.Holders.Waiting()), d.Pins.Unused())
	}
}

func TestUnused_DroppedAtTheDeadline(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	d.Pins.Leave(r.left("a"))
	r.pass(time.Hour)
	if all := r.Holders.Waiting(); len(all) != 0 {
		t.Errorf("waiting: got %d, want none", len(all))
	}
	wantTake(t, p, d, "")
}

// Decode's clock goes on while this machine is suspended.
func TestUnused_DroppedAtTheDeadlineOfASuspendedMachine(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	d.Pins.Leave(r.left("a"))
	awake := r.now()
	r.cfg.Now = func() time.Time { return clocktest.Apart(t, awake, time.Hour) }
	wantTake(t, p, d, "")
}

func TestUnused_PairPausesAfterAFailure(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	q := tells(r.named(upstream.RolePrefill, "q")[0], "1")
	q.PairWith(d).ExchangedKV()
	for _, name := range []string{"a", "b"} {
		d.Pins.Leave(r.left(name))
	}
	p.PairWith(d).ReleaseFailed(true)
	wantTake(t, p, d, "")
	wantTake(t, q, d, "a")
	r.pass(pairs.ReleasePause - time.Nanosecond)
	wantTake(t, p, d, "")
	r.pass(time.Nanosecond)
	wantTake(t, p, d, "b")
}

func TestUnused_DueByNumberOrByAge(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	due := func(want int) {
		t.Helper()
		all := r.Holders.Due(2)
		if len(all) != want {
			t.Errorf("due: got %d, want %d", len(all), want)
		}
	}
	d.Pins.Leave(r.left("a"))
	d.Pins.Leave(r.left("b"))
	due(0)
	r.pass(unused.ReleaseAfter)
	due(1)
	due(0) // under work
	d.Done()
	due(1)
	d.Done()
	wantTake(t, p, d, "a")
	wantTake(t, p, d, "b")
	due(0)
	for _, name := range []string{"c", "d", "e"} {
		d.Pins.Leave(r.left(name))
	}
	due(1)
	next := tells(d.Engine(), "2")
	for _, name := range []string{"f", "g", "h"} {
		next.Pins.Leave(r.left(name))
	}
	due(0) // a leg to the incarnation before is still under way
	d.Done()
	due(1)
}

func TestUnused_OneThatWasNotSentKeepsItsAge(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	d.Pins.Leave(r.left("a"))
	r.pass(unused.ReleaseAfter)
	u, _ := p.TakeUnused(d, false)
	if d.Pins.Leave(u); len(r.Holders.Due(8)) != 1 {
		t.Error("one that was not sent waits anew")
	}
}

func TestUnused_AreBounded(t *testing.T) {
	r := newRig(t)
	_, d := r.introducedPair()
	for i := range unused.Max + 10 {
		d.Pins.Leave(r.left(fmt.Sprint(i)))
	}
	if n := d.Pins.Unused(); n != unused.Max {
		t.Errorf("got %d tickets, want %d", n, unused.Max)
	}
}

func TestUnused_HurryWaitsForNoTurn(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	d.Pins.Hurry() // nothing waits
	d.Pins.Leave(r.left("a"))
	if len(r.Holders.Due(8)) != 0 || d.Pins.Unused() != 1 {
		t.Error("one that has just come is due")
	}
	d.Pins.Hurry()
	if len(r.Holders.Due(8)) != 1 {
		t.Error("what is in a hurry is not due")
	}
	d.Done()
	if !p.PairWith(d).Releases() {
		t.Error("the two have met, and release nothing")
	}
	p.TakeUnused(d, true)
	if len(r.Holders.Due(8)) != 0 || d.Pins.Unused() != 0 {
		t.Error("something is due when nothing waits")
	}
	d.Pins.Leave(r.left("b"))
	if len(r.Holders.Due(8)) != 0 {
		t.Error("the hurry has outlived what it was for")
	}
	p.PairWith(d).ReleaseFailed(true)
	if p.PairWith(d).Releases() || (*pairs.State)(nil).Releases() {
		t.Error("a link that is paused, or is none, releases")
	}
}

// A ticket whose leg was not answered may be read yet by the prefill incarnation that was sent it.
func TestUnused_UnansweredWaitsForItsReader(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	u := r.left("a")
	u.Reader = p
	d.Pins.Leave(u)
	take := func(prefill *Incarnation, own bool) bool {
		u, ok := d.Pins.Take(prefill, own)
		if ok {
			d.Pins.Leave(u)
		}
		return ok
	}
	if take(p, true) {
		t.Error("released before prefill has heard that the leg was dropped")
	}
	r.pass(unused.ReaderHears)
	other := newIncarnation(p.engine, "another")
	if take(p, false) || take(other, true) {
		t.Error("released by a turn's leg, or by an instance that does not know of the leg that was dropped")
	}
	if !take(p, true) {
		t.Error("not released by its reader")
	}
	p.end()
	if !take(other, true) {
		t.Error("not released by another though the reader's process is over")
	}
	if take(other, false) {
		t.Error("released by a turn's leg")
	}
}

// A turn's leg that fails with a release may fail for another cause: a leg of our own settles it.
func TestUnused_FailedPiggybackLeavesLegsOfOurOwn(t *testing.T) {
	r := newRig(t)
	p, d := r.introducedPair()
	d.Pins.Leave(r.left("a"))
	ps := p.PairWith(d)
	ps.ReleaseFailed(false)
	if _, ok := p.TakeUnused(d, false); ok || !ps.Releases() {
		t.Error("a turn's leg carries a release, or no leg of our own may")
	}
	r.pass(pairs.ReleasePause)
	wantTake(t, p, d, "a")
}
