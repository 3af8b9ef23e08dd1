package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
)

// quarantineBy puts the start of a prefill engine of the rig under quarantine.
func (r *rig) quarantineBy(e *engine) { r.server.Caught(r.engine(e).Last()) }

// quarantineRig is a rig of two prefill engines, of which the first takes the first turn.
func quarantineRig(t *testing.T) (*rig, *storeSeam) {
	t.Helper()
	seam := &storeSeam{}
	r := newRig(t, setup{prefills: 2, cfg: func(c *server.Config) { byTokens(c); releasing(c) }, deps: func(d *server.Deps) {
		seam.Store, d.Store = d.Store, seam
	}})
	r.inIDs(nil)
	return r, seam
}

// wantReleasing checks that nothing is in the store, and that the blocks of so many tickets wait for their release.
func (r *rig) wantReleasing(want int) {
	r.t.Helper()
	if n := r.store.Len(); n != 0 {
		r.t.Errorf("%d conversations are in the store", n)
	}
	if n := r.server.Unused(); n != want {
		r.t.Errorf("%d tickets wait for their release, want %d", n, want)
	}
}

func TestQuarantine_IsSaidOnce(t *testing.T) {
	r, _ := quarantineRig(t)
	r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
	r.quarantineBy(r.prefill[0])
	for range 2 {
		r.server.Sweep(t.Context())
	}
	if n := r.log.count("tickets from before are given up", `"level":"WARN"`); n != 1 {
		t.Errorf("said %d times, want once", n)
	}
}

func TestQuarantine_StoredTicketsAreGivenUp(t *testing.T) {
	r, _ := quarantineRig(t)
	r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
	r.wantOK(r.sendIDs("d", true, count(1000, 200)...), "miss;")
	r.quarantineBy(r.prefill[0])
	for range 2 {
		r.server.TakeLate(t.Context())
		r.wantReleasing(2)
	}
}

// The quarantine comes while the answer's ticket is put.
func TestQuarantine_WhileTheTicketIsPut(t *testing.T) {
	for _, swept := range []bool{false, true} { // before it is stored
		r, seam := quarantineRig(t)
		seam.put = func(ctx context.Context) (convcache.Outcome, bool) {
			if r.quarantineBy(r.prefill[0]); swept {
				r.server.TakeLate(ctx)
			}
			return convcache.Unavailable, false
		}
		r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
		r.server.TakeLate(t.Context())
		r.wantReleasing(1)
	}
}

func TestQuarantine_ATurnFindsNothingOfIt(t *testing.T) {
	for _, between := range []bool{false, true} { // look and take
		r, seam := quarantineRig(t)
		r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
		if between {
			seam.take = func(context.Context) (convcache.Outcome, bool) {
				seam.take = nil
				r.quarantineBy(r.prefill[0])
				return convcache.Unavailable, false
			}
		} else {
			r.quarantineBy(r.prefill[0])
		}
		r.wantOK(r.sendIDs("c", true, continued(count(1, 200))...), "miss;reason=quarantined")
		for _, e := range r.prefill {
			if e.tickets() != e.releases() {
				t.Errorf("%s has read the ticket", e.name)
			}
		}
		if n := r.server.Unused(); n > 1 {
			t.Errorf("%d tickets wait for their release", n)
		}
	}
}

func TestQuarantine_NothingOfItIsHandedBack(t *testing.T) {
	for _, swept := range []bool{false, true} {
		r := handBackRig(t, setup{prefills: 2})
		r.wantOK(r.sendIDs("c", true, count(1, 40)...), "miss;")
		r.wantOK(r.sendIDs("", true, count(100, 40)...), "miss;")
		r.quarantineBy(r.prefill[0])
		if swept {
			r.server.TakeLate(t.Context())
			r.wantReleasing(2)
		}
		r.handBack(overdue, 0)
		r.handBack(overdue, 0)
		r.server.TakeLate(t.Context())
		r.wantReleasing(2)
	}
}

// A note of KV that is in doubt leads no turn anywhere, and says nothing of what prefill has found.
func TestQuarantine_NotesAreIgnored(t *testing.T) {
	r := handBackRig(t, setup{})
	prompt := count(1, 40)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
	r.handBack(overdue, 1)
	r.prefill[0].always(readsIDs(40))
	r.wantOK(r.sendIDs("c", true, continued(prompt)...), "hit;tokens=40;read=40;")
	r.handBack(overdue, 2)
	r.quarantineBy(r.prefill[0])
	r.tell(r.prefill[0], metricsOf("1.6e+09", rigBlock))
	r.engine(r.prefill[0]).Refresh(t.Context())
	r.wantOK(r.sendIDs("c", true, continued(continued(prompt))...), "miss;reason=quarantined")
}

// saltIn is the cache_salt of a leg, "" for none.
func saltIn(l leg) string {
	_, salt, _ := strings.Cut(l.body, `"cache_salt":"`)
	salt, _, _ = strings.Cut(salt, `"`)
	return salt
}

// Both legs have a salt of the epoch, with the client's behind it, until both engines were started since.
func TestQuarantine_TheSaltOfTheEpochStays(t *testing.T) {
	r, _ := quarantineRig(t)
	first := 1
	misses := func(members string) {
		t.Helper()
		first += 500
		r.wantOK(r.sendTo(textPath, plus(askIDs(fmt.Sprint(first), true, count(first, 200)...), members)), "miss;")
	}
	misses("")
	r.quarantineBy(r.prefill[0])
	misses("")
	r.wantOK(r.sendIDs(fmt.Sprint(first), true, continued(count(first, 200))...), "hit;") // what both made under the salt is of use
	long := strings.Repeat("own ", 32)
	misses(`,"cache_salt":"` + long + `"`)
	restarts := func(e *engine, ahead time.Duration) {
		r.tell(e, metricsOf(fmt.Sprint(float64(time.Now().Add(ahead).Unix())), rigBlock))
		r.engine(e).Refresh(t.Context())
	}
	for _, row := range []struct {
		engine *engine
		ahead  time.Duration
	}{{r.decode[0], time.Hour}, {r.prefill[1], 0}, {r.prefill[1], time.Hour}, {r.prefill[1], -time.Hour}} {
		restarts(row.engine, row.ahead)
		misses("")
	}
	// Another rise gives everybody another salt.
	r.quarantineBy(r.prefill[0])
	restarts(r.prefill[1], time.Hour-time.Second)
	restarts(r.decode[0], -time.Hour)
	misses("")
	prefill, decode := r.prefill[1].seen(), r.decode[0].seen()
	salt, other := saltIn(decode[1]), saltIn(decode[8])
	for i, want := range []string{
		"", salt, salt, upstream.Salted(salt, long),
		salt,  // prefill runs since before
		salt,  // the clocks may differ
		"",    // both were started since
		salt,  // the wrong process answers
		other, // of another epoch
	} {
		if got := saltIn(decode[i]); got != want || i > 0 && saltIn(prefill[i-1]) != want {
			t.Errorf("leg %d: salt %q at decode, want %q on both legs", i, got, want)
		}
	}
	if salt == other || !strings.HasPrefix(salt, "quarantine-") || !strings.HasPrefix(other, "quarantine-") {
		t.Errorf("salts %q and %q", salt, other)
	}
}

// The salt with which a quarantined prefill serves is that of the attempt: the next one, after the restart, has none, nor has its hand-back. Behind
// a connection that was reset it is in doubt which start is there, so that the quarantine may hold until that is read, with another salt.
func TestQuarantine_TheSaltOfAnAttemptDoesNotStay(t *testing.T) {
	for doubt, fails := range map[bool]behaviour{false: status(http.StatusBadGateway, "restarting"), true: resets} {
		gate := make(chan struct{})
		r := newRig(t, setup{})
		r.quarantine(r.prefill[0])
		r.decode[0].always(waits(gate, decodes))
		r.prefill[0].next(func(w http.ResponseWriter, req *http.Request, l leg) {
			r.tell(r.prefill[0], metricsOf("1.6e+09", rigBlock))
			r.engine(r.prefill[0]).Refresh(context.WithoutCancel(req.Context()))
			fails(w, req, l)
		})
		const alone = 16 // turns that decode may prefill by itself
		done := make(chan reply, alone+1)
		for n := range alone + 1 {
			go func() { done <- r.turn("c", 1, true) }()
			r.decode[0].await(n + 1)
		}
		close(gate)
		for range alone + 1 {
			r.wantOK(<-done, "miss;")
		}
		legs := r.prefill[0].await(2)
		first, second, handed := saltIn(legs[0]), saltIn(legs[1]), saltIn(r.decode[0].seen()[alone])
		if len(legs) != 2 || first == "" || second == first || second != "" && !doubt || handed != second {
			t.Errorf("salts of %d prefill legs: %q and %q, of decode's %q", len(legs), first, second, handed)
		}
	}
}

// A ticket has the epoch of its turn's legs, whatever the epoch is when it is put.
func TestQuarantine_ATicketHasTheEpochOfItsLegs(t *testing.T) {
	log := &putLog{}
	r := newRig(t, setup{prefills: 2, cfg: byTokens, deps: func(d *server.Deps) { log.Store, d.Store = d.Store, log }})
	r.inIDs(nil)
	r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
	r.quarantineBy(r.prefill[0])
	r.wantOK(r.sendIDs("d", true, count(1000, 200)...), "miss;")
	r.decode[0].next(func(w http.ResponseWriter, req *http.Request, l leg) {
		r.quarantineBy(r.prefill[0])
		decodesIDs(nil)(w, req, l)
	})
	r.wantOK(r.sendIDs("e", true, count(2000, 200)...), "miss;")
	if len(log.all) != 2 || log.all[0].Epoch != 0 || log.all[1].Epoch == 0 {
		t.Errorf("%d tickets are put, want two of different epochs", len(log.all))
	}
}
