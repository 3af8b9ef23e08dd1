package lineage

import (
	"hash/fnv"
	"strconv"
	"testing"
	"time"

	"carryover/convcache"
)

// rig is a replica of a test. All that it does takes a second.
type rig struct {
	*Records
	t       *testing.T
	clock   *time.Time
	changes int
}

func newRig(t *testing.T, clock *time.Time) *rig {
	t.Helper()
	r := &rig{t: t, clock: clock}
	r.Records = New(func(p Address, incarnation string) convcache.Incarnation {
		h := fnv.New64a()
		_, _ = h.Write([]byte(p.URL + " " + strconv.Itoa(p.Rank) + " " + incarnation))
		return convcache.Incarnation(h.Sum64())
	}, func() { r.changes++ })
	r.Records.clock = newClock(clock)
	return r
}

func newClock(now *time.Time) clock {
	return clock{born: *now, now: func() time.Time {
		*now = now.Add(time.Second)
		return *now
	}}
}

func began() *time.Time {
	at := time.Unix(1_790_000_000, 0)
	return &at
}

func at(name string) Address { return Address{URL: name} }

// prefills has a leg without a ticket run on prefill, and returns its space.
func (r *rig) prefills(name string) Space { return r.At(at(name), "1") }

// hands brings the KV of a prefill leg to decode, and returns the lineage of what decode holds then.
func (r *rig) hands(p Space, decode string) convcache.Lineage {
	r.t.Helper()
	l := r.Leaves(p)
	d, ok := r.Enter(at(decode), "1", l)
	if !ok {
		r.t.Fatalf("a hand-over to %s is in doubt", decode)
	}
	l.Join(r.Leaves(d))
	return l
}

// reads has prefill read a ticket.
func (r *rig) reads(l convcache.Lineage, prefill string) Space {
	r.t.Helper()
	s, ok := r.Enter(at(prefill), "1", l)
	if !ok {
		r.t.Fatalf("a ticket for %s is in doubt", prefill)
	}
	return s
}

// want checks which engines have a salt of a quarantine.
func (r *rig) want(exposed map[string]bool) {
	r.t.Helper()
	for name, want := range exposed {
		salt := r.At(at(name), "1").Salt()
		if _, got := r.Exposed(at(name), "1"); got != want || (salt != "") != want {
			r.t.Errorf("%s: exposed %t with salt %q, want %t", name, salt != "", salt, want)
		}
	}
}

// bad has a leg to p1 sent, and answered with other ids when what happens meanwhile has happened.
func (r *rig) bad(meanwhile func()) {
	r.t.Helper()
	leg := r.prefills("p1")
	meanwhile()
	r.Bad(leg)
}

func TestRecords_NothingIsInDoubtWithoutAQuarantine(t *testing.T) {
	r := newRig(t, began())
	ticket := r.hands(r.reads(r.hands(r.prefills("p1"), "d1"), "p2"), "d2")
	if r.InDoubt(ticket) || r.InDoubt(convcache.Lineage{}) || r.changes != 0 {
		t.Error("KV is in doubt")
	}
	r.want(map[string]bool{"p1": false, "p2": false, "d1": false, "d2": false})
}

func TestRecords_WhatDescendsIsInDoubtTransitively(t *testing.T) {
	r := newRig(t, began())
	r.Good(r.prefills("p1"))
	apart := r.hands(r.prefills("p3"), "d3")
	var first, second convcache.Lineage
	r.bad(func() {
		first = r.hands(r.prefills("p1"), "d1")
		second = r.hands(r.reads(first, "p2"), "d2")
	})
	if !r.InDoubt(first) || !r.InDoubt(second) || r.InDoubt(apart) || !r.InDoubt(convcache.Lineage{}) {
		t.Errorf("in doubt: first %t, second %t, another %t, an unknown one %t", r.InDoubt(first), r.InDoubt(second), r.InDoubt(apart), r.InDoubt(convcache.Lineage{}))
	}
	r.want(map[string]bool{"d1": true, "p2": true, "d2": true, "p3": false, "d3": false})
	if r.changes == 0 || !r.Quarantined(at("p1"), "1") || r.Quarantined(at("p2"), "1") {
		t.Error("the quarantine is not known, or of another incarnation too")
	}
}

// A leg that was sent before the wrong one and is answered well after it does not help: it may have read what was filed wrongly.
func TestRecords_CountsFromTheLastGoodEcho(t *testing.T) {
	r := newRig(t, began())
	before := r.hands(r.prefills("p1"), "d1")
	good := r.prefills("p1")
	r.Good(good)
	var meanwhile convcache.Lineage
	r.bad(func() {
		leg := r.prefills("p1")
		r.Good(leg)
		meanwhile = r.hands(leg, "d2")
	})
	if r.InDoubt(before) || !r.InDoubt(meanwhile) {
		t.Errorf("in doubt: before %t, meanwhile %t", r.InDoubt(before), r.InDoubt(meanwhile))
	}
	r.want(map[string]bool{"d1": false, "d2": true})
}

func TestRecords_WithoutAGoodEchoAllIsInDoubt(t *testing.T) {
	r := newRig(t, began())
	before := r.hands(r.prefills("p1"), "d1")
	r.bad(func() {})
	if !r.InDoubt(before) {
		t.Error("not in doubt")
	}
	r.want(map[string]bool{"d1": true})
}

// What is computed under the salt is clean, and the salt stays.
func TestRecords_TheNextSpaceIsClean(t *testing.T) {
	r := newRig(t, began())
	var late Space
	r.bad(func() {
		r.hands(r.prefills("p1"), "d1")
		late = r.At(at("d1"), "1")
	})
	salt := r.At(at("d1"), "1").Salt()
	clean := r.hands(r.prefills("p2"), "d1")
	if r.InDoubt(clean) || r.At(at("d1"), "1").Salt() != salt {
		t.Errorf("in doubt %t, salt %q and then %q", r.InDoubt(clean), salt, r.At(at("d1"), "1").Salt())
	}
	if l := r.Leaves(late); !r.InDoubt(l) {
		t.Error("an answer of the space before is not in doubt")
	}
	// Another quarantine, of an engine that has met the new space.
	leg := r.At(at("p3"), "1")
	r.hands(leg, "d1")
	r.Bad(leg)
	if other := r.At(at("d1"), "1").Salt(); other == "" || other == salt {
		t.Errorf("salt %q after %q", other, salt)
	}
	// A restart empties the cache.
	if s := r.At(at("d1"), "2"); s.Salt() != "" {
		t.Errorf("salt %q after a restart", s.Salt())
	}
}

func TestRecords_InDoubtDoesNotEnter(t *testing.T) {
	r := newRig(t, began())
	var ticket convcache.Lineage
	r.bad(func() { ticket = r.hands(r.prefills("p1"), "d1") })
	if _, ok := r.Enter(at("p2"), "1", ticket); ok {
		t.Error("it enters")
	}
	r.want(map[string]bool{"p2": false})
}

// KV that came while the start of decode was not known is that of the start that is known next.
func TestRecords_UnknownIncarnations(t *testing.T) {
	for name, first := range map[string]string{"never known": "", "known before": "0"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, began())
			r.At(at("d1"), first)
			leg := r.prefills("p1")
			if _, ok := r.Enter(at("d1"), "", r.Leaves(leg)); !ok {
				t.Fatal("in doubt")
			}
			r.At(at("d1"), "1")
			r.Bad(leg)
			r.want(map[string]bool{"d1": true})
		})
	}
	r := newRig(t, began())
	r.prefills("p1")
	here, elsewhere := r.hands(r.At(at("p1"), ""), "d1"), r.hands(r.At(at("p9"), ""), "d9")
	r.Quarantine(at("p1"), "7") // another incarnation than the one that was known before
	if !r.InDoubt(here) || r.InDoubt(elsewhere) {
		t.Errorf("KV of an engine whose start was not known: in doubt %t, and that of another %t", r.InDoubt(here), r.InDoubt(elsewhere))
	}
}

// share is a round of what replicas tell each other.
func share(redis map[doubt]convcache.Quarantine, replicas ...*rig) {
	for _, r := range replicas {
		var all []convcache.Quarantine
		for _, q := range redis {
			all = append(all, q)
		}
		for _, q := range r.Adopt(all) {
			redis[doubt{q.Incarnation, q.Exposed, q.Space}] = q
		}
	}
}

// A replica that does not know yet spreads KV that is in doubt, by engines that have exchanged none with the incarnation.
func TestRecords_ReplicasTellEachOther(t *testing.T) {
	clock := began()
	a, b := newRig(t, clock), newRig(t, clock)
	redis := map[doubt]convcache.Quarantine{}
	share(redis, a, b)
	a.Good(a.prefills("p1"))
	var ofA, ofB convcache.Lineage
	a.bad(func() { ofA = a.hands(a.prefills("p1"), "d1") })
	// The other replica uses the decode instance and the ticket.
	ofB = b.hands(b.reads(ofA, "p2"), "d2")
	plain := b.hands(b.prefills("p3"), "d1") // whose answer may come of decode's own cache
	if !a.InDoubt(ofB) || !a.InDoubt(plain) {
		t.Errorf("tickets of a replica that does not know: in doubt %t and %t", a.InDoubt(ofB), a.InDoubt(plain))
	}
	share(redis, a, b, a)
	for _, r := range []*rig{a, b} {
		if !r.InDoubt(ofA) || !r.InDoubt(ofB) || !r.InDoubt(plain) || !r.Quarantined(at("p1"), "1") {
			t.Error("a replica does not know")
		}
		r.want(map[string]bool{"d1": true, "p2": true, "d2": true, "p3": false})
	}
	told := len(redis)
	before := map[doubt]convcache.Quarantine{}
	for d, q := range redis {
		before[d] = q
	}
	share(redis, a, b, a, b)
	if len(redis) != told {
		t.Errorf("%d and then %d are told", told, len(redis))
	}
	for d, q := range before {
		if redis[d] != q {
			t.Errorf("the moment of %+v creeps: %d and then %d", d, q.Since, redis[d].Since)
		}
	}
	// One that begins now learns of an incarnation that is over.
	c := newRig(t, clock)
	share(redis, c)
	if !c.InDoubt(ofB) || c.At(at("d1"), "1").Salt() == "" {
		t.Error("a replica that begins does not know")
	}
}

func TestRecords_AreBounded(t *testing.T) {
	r := newRig(t, began())
	early := r.hands(r.prefills("p1"), "early")
	for i := range maxEngines + 10 {
		r.At(at("d"+strconv.Itoa(i)), strconv.Itoa(i))
	}
	for i := range 3 * maxIncarnations {
		r.At(at("d"), strconv.Itoa(i))
	}
	if n, m := len(r.engines), len(r.engines[at("d")].caches); n != maxEngines || m != maxIncarnations {
		t.Errorf("%d places and %d starts", n, m)
	}
	r.bad(func() {})
	r.want(map[string]bool{"early": true}) // it was forgotten: whatever comes may be it
	if !r.InDoubt(early) {
		t.Error("a ticket of an engine that was forgotten is not in doubt")
	}
	r = newRig(t, began())
	for i := range maxDoubts + 10 {
		r.Quarantine(at("q"), strconv.Itoa(i))
	}
	if len(r.known) != maxDoubts || len(r.order) != maxDoubts || len(r.found) != maxDoubts {
		t.Errorf("%d quarantines are known", len(r.known))
	}
}

// What a ticket names no more is in doubt if it came until all replicas had heard of the quarantine, and not for ever.
func TestRecords_AncestorsThatAreNotNamed(t *testing.T) {
	r := newRig(t, began())
	r.Good(r.prefills("p1"))
	before, during := r.clock.Unix(), int64(0)
	r.bad(func() { during = r.clock.Unix() })
	for moment, want := range map[int64]bool{before - 5: false, during: true, during + 5: true, during + 60: false} {
		if got := r.InDoubt(convcache.Lineage{Others: moment * 1e9}); got != want {
			t.Errorf("%d s after: in doubt %t, want %t", moment-during, got, want)
		}
	}
}

func TestClock_IsSafeWhereTheWallClockIsSet(t *testing.T) {
	born := time.Now()
	now := born
	c := clock{born: born, now: func() time.Time { return now }}
	since := c.earliest()
	now = now.Add(time.Second)
	if c.latest() <= since || c.earliest() <= since {
		t.Error("the clock stands")
	}
	now = time.Unix(0, now.UnixNano()-int64(time.Hour)) // set back; it has no monotonic reading, as little as another process'
	if c.earliest() >= since {
		t.Error("the earlier of two moments is not told")
	}
}
