package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
)

// quarantineBy puts the start of a prefill engine of the rig under quarantine.
func (r *rig) quarantineBy(e *engine) { r.server.Quarantine(r.engine(e).Last()) }

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
	if n := r.engine(r.decode[0]).Last().Pins.Unused(); n != want {
		r.t.Errorf("%d tickets wait for their release, want %d", n, want)
	}
}

func TestQuarantine_StoredTicketsAreGivenUp(t *testing.T) {
	r, _ := quarantineRig(t)
	r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
	r.wantOK(r.sendIDs("d", true, count(1000, 200)...), "miss;")
	r.quarantine(r.prefill[0])
	r.server.CompareExposures(t.Context())
	r.wantReleasing(2)
	if n := r.log.count("engine has KV of a prefill under quarantine", `"level":"ERROR"`, r.decode[0].name); n != 1 {
		t.Errorf("decode is named %d times, want once", n)
	}
	r.server.CompareExposures(t.Context())
	if n := r.log.count("engine has KV of a prefill under quarantine"); n != 1 {
		t.Errorf("decode is named %d times, want once", n)
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
			if n := r.engine(r.decode[0]).Last().Pins.Unused(); n > 1 {
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
			r := newRig(t, setup{prefills: 2, cfg: handingBack})
			r.inIDs(nil)
			for _, e := range r.prefill {
				e.always(readsIDs(&atomic.Int64{}, nil))
			}
			r.wantOK(r.sendIDs("c", true, count(1, 40)...), "miss;")
			r.wantOK(r.sendIDs("", true, count(100, 40)...), "miss;") // which waits for its hand-back in no store
			r.quarantineBy(r.prefill[0])
			if swept {
				r.server.CompareExposures(t.Context())
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
	r, cached := handBackRig(t, nil)
	prompt := count(1, 40)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
	r.handBack(overdue, 1)
	cached.Store(40)
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

// Decode that has had KV in doubt is asked under a salt that stays, with the client's behind it. Prefill that has had none is not.
func TestQuarantine_TheSaltOfDecodeStays(t *testing.T) {
	r, _ := quarantineRig(t)
	r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
	r.quarantineBy(r.prefill[0])
	prompt := count(1000, 200)
	r.wantOK(r.sendIDs("d", true, prompt...), "miss;")
	r.wantOK(r.sendIDs("d", true, continued(prompt)...), "hit;") // what decode made under the salt is of use
	own := strings.Replace(askIDs("e", true, prompt...), `{`, `{"cache_salt":"own",`, 1)
	r.wantOK(r.sendTo(textPath, own), "miss;")
	legs := r.decode[0].seen()
	salt := saltIn(legs[1])
	if saltIn(legs[0]) != "" || !strings.HasPrefix(salt, "quarantine-") || saltIn(legs[2]) != salt || saltIn(legs[3]) != salt+"own" {
		t.Errorf("salts of decode's legs: %q, %q, %q, %q", saltIn(legs[0]), salt, saltIn(legs[2]), saltIn(legs[3]))
	}
	for i, want := range []string{"", "", "own"} {
		if got := saltIn(r.prefill[1].seen()[i]); got != want {
			t.Errorf("salt of prefill's leg %d: %q, want %q", i, got, want)
		}
	}
	// Restarted, it has an empty cache.
	r.tell(r.decode[0], metricsOf("1.6e+09", rigBlock))
	r.engine(r.decode[0]).Refresh(t.Context())
	r.wantOK(r.sendIDs("f", true, count(2000, 200)...), "miss;")
	if got := saltIn(r.decode[0].seen()[4]); got != "" {
		t.Errorf("salt of the leg to another start: %q", got)
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

// sharedLineages is what replicas tell each other.
type sharedLineages struct {
	mu  sync.Mutex // guards all
	all []convcache.Quarantine
}

func (s *sharedLineages) Quarantine(_ context.Context, q convcache.Quarantine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, q)
	return nil
}

func (s *sharedLineages) Quarantines(context.Context) ([]convcache.Quarantine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]convcache.Quarantine{}, s.all...), nil
}

func TestQuarantine_IsToldOnce(t *testing.T) {
	shared := &sharedLineages{}
	r := newRig(t, setup{prefills: 2, cfg: byTokens, deps: func(d *server.Deps) { d.Shared.Lineages = shared }})
	r.inIDs(nil)
	r.wantOK(r.sendIDs("c", true, count(1, 200)...), "miss;")
	r.quarantineBy(r.prefill[0])
	for range 3 {
		r.server.CompareExposures(t.Context())
	}
	exposed := 0
	for _, q := range shared.all {
		if q.Exposed {
			exposed++
		}
	}
	if len(shared.all) != 3 || exposed != 1 {
		t.Errorf("told %+v, want prefill with its start and without, and decode's cache", shared.all)
	}
}

// A ticket names the caches of both engines of its turn, and those that the ticket has named that the turn has used.
func TestQuarantine_ATicketNamesItsAncestors(t *testing.T) {
	log := &putLog{}
	r := newRig(t, setup{prefills: 2, cfg: byTokens, deps: func(d *server.Deps) { log.Store, d.Store = d.Store, log }})
	r.inIDs(nil)
	prompt := count(1, 200)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
	first := log.all[0].Lineage
	if len(first.Ancestors) != 2 || first.Others != 0 {
		t.Fatalf("the first ticket descends from %+v, want prefill and decode", first)
	}
	r.deps.Fleet.Set([]upstream.Instance{*r.engine(r.prefill[1]).Instance(), *r.engine(r.decode[0]).Instance()})
	r.wantOK(r.sendIDs("c", true, continued(prompt)...), "hit;")
	if second := log.all[1].Lineage; len(second.Ancestors) != 3 {
		t.Errorf("the second ticket descends from %+v, want another prefill too", second)
	}
}
