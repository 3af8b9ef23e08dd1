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

func TestQuarantine_StoredTicketsAreGivenUp(t *testing.T) {
	r, _ := quarantineRig(t)
	r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
	r.wantOK(r.sendIDs("d", true, count(1000, 200)...), "miss;")
	r.quarantineBy(r.prefill[0])
	for range 2 {
		r.server.Sweep(t.Context())
		r.wantReleasing(2)
	}
	if n := r.log.count("tickets from before are given up", `"level":"WARN"`); n != 1 {
		t.Errorf("said %d times, want once", n)
	}
}

func TestQuarantine_ATurnFindsNothingOfIt(t *testing.T) {
	prompt := count(1, 200)
	for name, at := range map[string]func(r *rig, seam *storeSeam){
		"before the look": func(r *rig, _ *storeSeam) { r.quarantineBy(r.prefill[0]) },
		"between look and take": func(r *rig, seam *storeSeam) {
			seam.take = func(context.Context) (convcache.Outcome, bool) {
				seam.take = nil
				r.quarantineBy(r.prefill[0])
				return convcache.Unavailable, false
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, seam := quarantineRig(t)
			r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
			at(r, seam)
			p := r.sendIDs("c", true, continued(prompt)...)
			r.wantOK(p, "miss;")
			if reuse := p.reuse(); reuse != "miss;reason=quarantined" && reuse != "miss;reason=retried_without_ticket" {
				t.Errorf("X-KV-Reuse %q", reuse)
			}
			for _, e := range r.prefill {
				for _, l := range e.seen() {
					if strings.Contains(l.body, `"remote_num_tokens":2`) {
						t.Errorf("a leg reads the ticket: %s", l.body)
					}
				}
			}
			if n := r.server.Unused(); n > 1 {
				t.Errorf("%d tickets wait for their release", n)
			}
		})
	}
}

// The quarantine comes while the answer's ticket is put.
func TestQuarantine_WhileTheTicketIsPut(t *testing.T) {
	r, seam := quarantineRig(t)
	seam.put = func(context.Context) (convcache.Outcome, bool) {
		r.quarantineBy(r.prefill[0])
		return convcache.Unavailable, false
	}
	r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
	r.wantReleasing(1)
}

func TestQuarantine_NothingOfItIsHandedBack(t *testing.T) {
	for name, swept := range map[string]bool{"before the sweep": false, "behind it": true} {
		t.Run(name, func(t *testing.T) {
			r := handBackRig(t, setup{prefills: 2})
			r.wantOK(r.sendIDs("c", true, count(1, 40)...), "miss;")
			r.wantOK(r.sendIDs("", true, count(100, 40)...), "miss;") // which waits for its hand-back in no store
			r.quarantineBy(r.prefill[0])
			if swept {
				r.server.Sweep(t.Context())
				r.wantReleasing(2)
			}
			r.handBack(overdue, 0) // which finds another way for what was to go to the quarantined incarnation
			r.handBack(overdue, 0)
			r.wantReleasing(2)
		})
	}
}

// A note of KV that is in doubt leads no turn anywhere, and says nothing of what prefill has found.
func TestQuarantine_NotesAreIgnored(t *testing.T) {
	r := handBackRig(t, setup{})
	prompt := count(1, 40)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
	r.handBack(overdue, 1)
	r.prefill[0].always(readsIDs(40))
	if p := r.sendIDs("c", true, continued(prompt)...); !strings.Contains(p.reuse(), "proof=engine") {
		t.Fatalf("X-KV-Reuse %q: nothing is shown", p.reuse())
	}
	r.handBack(overdue, 2)
	r.quarantineBy(r.prefill[0])
	r.tell(r.prefill[0], metricsOf("1.6e+09", rigBlock))
	r.engine(r.prefill[0]).Refresh(t.Context())
	if p := r.sendIDs("c", true, continued(continued(prompt))...); p.reuse() != "miss;reason=quarantined" {
		t.Errorf("X-KV-Reuse %q of a conversation whose note is in doubt", p.reuse())
	}
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
	r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
	r.quarantineBy(r.prefill[0])
	prompt := count(1000, 200)
	r.wantOK(r.sendIDs("d", true, prompt...), "miss;")
	r.wantOK(r.sendIDs("d", true, continued(prompt)...), "hit;") // what both made under the salt is of use
	long := strings.Repeat("own ", 32)
	own := strings.Replace(askIDs("e", true, prompt...), `{`, `{"cache_salt":"`+long+`",`, 1)
	r.wantOK(r.sendTo(textPath, own), "miss;")
	first := saltIn(r.decode[0].seen()[1])
	if !strings.HasPrefix(first, "quarantine-") {
		t.Fatalf("salt of decode's leg: %q", first)
	}
	later := func(ago time.Duration) string { return fmt.Sprint(float64(time.Now().Add(-ago).Unix())) }
	restarts := func(e *engine, start string) {
		r.tell(e, metricsOf(start, rigBlock))
		r.engine(e).Refresh(t.Context())
	}
	for n, row := range []struct {
		engine *engine
		start  string
		salted bool
	}{
		{r.decode[0], later(-time.Hour), true}, // prefill runs since before
		{r.prefill[1], later(0), true},         // the clocks may differ
		{r.prefill[1], later(-time.Hour), false},
		{r.prefill[1], "1.6e+09", true}, // the wrong process answers
	} {
		restarts(row.engine, row.start)
		r.wantOK(r.sendIDs(fmt.Sprint("f", n), true, count(2000+500*n, 200)...), "miss;")
		if got := saltIn(r.decode[0].seen()[4+n]); (got == first) != row.salted || (got == "") == row.salted {
			t.Errorf("%d: salt %q", n, got)
		}
	}
	// Another rise gives everybody another salt.
	r.server.Caught(r.engine(r.prefill[0]).Last())
	restarts(r.prefill[1], later(-time.Hour+time.Second))
	restarts(r.decode[0], later(time.Hour))
	r.wantOK(r.sendIDs("g", true, count(9000, 200)...), "miss;")
	prefill, decode := r.prefill[1].seen(), r.decode[0].seen()
	if got := saltIn(decode[8]); !strings.HasPrefix(got, "quarantine-") || got == first {
		t.Errorf("salt behind another rise: %q, before it was %q", got, first)
	}
	if saltIn(decode[0]) != "" || saltIn(decode[3]) != upstream.Salted(first, long) {
		t.Errorf("salts of decode's legs: %q before the rise, %q with one of the client's", saltIn(decode[0]), saltIn(decode[3]))
	}
	for i := range prefill {
		if got, want := saltIn(prefill[i]), saltIn(decode[i+1]); got != want {
			t.Errorf("salt of prefill's leg %d: %q, of decode's %q", i, got, want)
		}
	}
}

// The salt with which a quarantined prefill serves is that of the attempt: the next one, after the restart, has none, nor has its hand-back. Behind
// a connection that was reset it is in doubt which start is there, so that the quarantine may hold until that is read, with another salt.
func TestQuarantine_TheSaltOfAnAttemptDoesNotStay(t *testing.T) {
	for name, c := range map[string]struct {
		fails behaviour
		doubt bool
	}{
		"status": {fails: status(http.StatusBadGateway, "restarting")},
		"reset":  {fails: resets, doubt: true},
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			r := newRig(t, setup{})
			r.quarantine(r.prefill[0])
			r.decode[0].always(waits(gate, decodes))
			const alone = 16 // turns that decode may prefill by itself
			done := make(chan reply, alone+1)
			for n := range alone {
				go func() { done <- r.turn("c", 1, true) }()
				r.decode[0].await(n + 1)
			}
			r.prefill[0].next(func(w http.ResponseWriter, req *http.Request, l leg) {
				r.tell(r.prefill[0], metricsOf("1.6e+09", rigBlock))
				r.engine(r.prefill[0]).Refresh(context.WithoutCancel(req.Context()))
				c.fails(w, req, l)
			})
			go func() { done <- r.turn("c", 1, true) }()
			r.decode[0].await(alone + 1)
			close(gate)
			for range alone + 1 {
				r.wantOK(<-done, "miss;")
			}
			legs := r.prefill[0].seen()
			if len(legs) != 2 {
				t.Fatalf("%d legs to prefill, want 2", len(legs))
			}
			first, second, handed := saltIn(legs[0]), saltIn(legs[1]), saltIn(r.decode[0].seen()[alone])
			if first == "" || second == first || second != "" && !c.doubt || handed != second {
				t.Errorf("salts of prefill's legs: %q and %q, of decode's %q", first, second, handed)
			}
		})
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

// A replica learns of a rise from the store, and tells it of its own.
func TestQuarantine_TheEpochIsSharedByReplicas(t *testing.T) {
	shared := &sharedQuarantines{down: true}
	replicas := make([]*rig, 2)
	for i := range replicas {
		replicas[i] = newRig(t, setup{prefills: 2, cfg: func(c *server.Config) { byTokens(c); releasing(c) }, deps: func(d *server.Deps) { d.Shared = shared }})
		replicas[i].inIDs(nil)
	}
	a, b := replicas[0], replicas[1]
	prompt := count(1, 200)
	b.wantOK(b.sendIDs("c", true, prompt...), "miss;")
	a.quarantineBy(a.prefill[0])
	a.server.Sweep(t.Context())
	if shared.Epoch() != 0 {
		t.Fatal("told what can't be told")
	}
	shared.set(false, false)
	a.server.Sweep(t.Context())
	first := shared.Epoch()
	if a.server.Sweep(t.Context()); first == 0 || shared.Epoch() != first {
		t.Errorf("epoch %d, and %d when it was told again", first, shared.Epoch())
	}
	b.wantOK(b.sendIDs("c", true, continued(prompt)...), "miss;reason=quarantined") // before its next round
	if got := saltIn(b.decode[0].seen()[1]); !strings.HasPrefix(got, "quarantine-") || got != func() string {
		a.wantOK(a.sendIDs("d", true, prompt...), "miss;")
		return saltIn(a.decode[0].seen()[0])
	}() {
		t.Errorf("salt %q, which replicas don't share", got)
	}
	shared.forget() // a failover
	b.server.Sweep(t.Context())
	if got := shared.Epoch(); got != first {
		t.Errorf("epoch %d, want %d again", got, first)
	}
}
