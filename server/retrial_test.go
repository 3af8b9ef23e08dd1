package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// clock is the time as the fleet knows it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// advance lets time pass for a rig, after which its engines' starts are known as before.
func (c *clock) advance(r *rig, d time.Duration) {
	c.ahead.Add(int64(d))
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, engine := range r.deps.Fleet.Engines(role) {
			for !engine.Fresh().Known() { // a reading under way has begun before
				engine.Refresh(r.t.Context())
			}
		}
	}
}

// stoppedRig is a rig whose link has been stopped by refused tickets. The conversation "c" has had four turns.
func stoppedRig(t *testing.T, s setup) (*rig, *clock) {
	t.Helper()
	c := &clock{}
	s.fleet = func(cfg *fleet.Config) { cfg.Now = c.now }
	r := newRig(t, s)
	r.prefill[0].always(refusesTickets(status(500, "x")))
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	for n := 2; n <= 4; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=retried_without_ticket")
	}
	r.wantOK(r.turn("c", 5, true), "miss;reason=prefill_not_bidirectional")
	return r, c
}

// refusesTickets is a prefill instance that fails legs with a ticket in one way, and serves all others.
func refusesTickets(fails behaviour) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		if l.ticket() != "" {
			fails(w, r, l)
			return
		}
		prefills(w, r, l)
	}
}

// tickets counts the legs of a prefill instance that carried one.
func (e *engine) tickets() int {
	n := 0
	for _, l := range e.seen() {
		if l.ticket() != "" {
			n++
		}
	}
	return n
}

func (r *rig) wantTickets(n int) {
	r.t.Helper()
	if got := r.prefill[0].tickets(); got != n {
		r.t.Errorf("prefill got %d tickets, want %d", got, n)
	}
}

// An answered ticket counts when prefill has answered, not when decode has said its last word.
func TestTurn_AnAnswerCountsBeforeTheTurnEnds(t *testing.T) {
	r := newRig(t, setup{})
	for _, c := range []string{"slow", "c"} {
		r.wantOK(r.turn(c, 1, true), "miss;reason=first_turn")
	}
	gate := make(chan struct{})
	r.decode[0].next(waits(gate, decodes))
	slow := make(chan reply, 1)
	go func() { slow <- r.turn("slow", 2, true) }()
	r.decode[0].await(3)
	r.wantOK(r.turn("c", 2, true), "hit;") // the trial is over
	r.prefill[0].always(refusesTickets(status(500, "x")))
	for n := 3; n <= 4; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=retried_without_ticket")
	}
	close(gate)
	r.wantOK(<-slow, "hit;")
	r.wantOK(r.turn("c", 5, true), "miss;reason=retried_without_ticket")
	r.wantOK(r.turn("c", 6, true), "miss;reason=prefill_not_bidirectional")
	r.wantTickets(5)
}

func TestTurn_StoppedPairIsTriedAgain(t *testing.T) {
	r, clock := stoppedRig(t, setup{})
	r.server.SpendRetries()
	clock.advance(r, 30*time.Second)
	r.wantOK(r.turn("c", 6, true), "miss;reason=prefill_not_bidirectional")
	clock.advance(r, 30*time.Second)
	r.wantOK(r.turn("c", 7, true), "miss;reason=retried_without_ticket")
	r.wantOK(r.turn("c", 8, true), "miss;reason=prefill_not_bidirectional")
	r.wantTickets(4)
	if n := r.log.count("answers 5xx to tickets", `"tried_again_in":"2m0s"`, `"level":"WARN"`); n != 1 {
		t.Errorf("got %d warnings of a longer stop, want 1", n)
	}
	clock.advance(r, 2*time.Minute)
	r.prefill[0].always(prefills)
	r.wantOK(r.turn("c", 9, true), "hit;")
	r.wantOK(r.turn("c", 10, true), "hit;")
	if n := r.log.count("answers tickets of decode again", `"level":"INFO"`, "prefill-0", "decode-0"); n != 1 {
		t.Errorf("got %d log lines of the pair's return, want 1", n)
	}
}

// However a trial ends inconclusively, the next turn is a trial at once: the link is neither proven nor lost.
func TestTurn_InconclusiveRetrialIsRepeated(t *testing.T) {
	boom := func(context.Context) (convcache.Outcome, bool) { panic("boom") }
	answered := func(set func(r *rig, s *seams), status int, word string) func(*rig, *seams) {
		return func(r *rig, s *seams) {
			set(r, s)
			if p := r.turn("c", 6, true); status == http.StatusOK {
				r.wantOK(p, "miss;reason="+word)
			} else {
				r.wantError(p, status, word)
			}
		}
	}
	for name, ends := range map[string]func(*rig, *seams){
		"panic in prefill": answered(func(_ *rig, s *seams) { s.legs.beforePrefill = func(context.Context) { panic("boom") } }, 500, "internal"),
		"panic in params":  answered(func(_ *rig, s *seams) { s.connector.prefillParams = func([]byte) error { panic("boom") } }, 500, "internal"),
		"panic in take":    answered(func(_ *rig, s *seams) { s.store.take = boom }, 500, "internal"),
		"panic in putting back": answered(func(_ *rig, s *seams) {
			s.unsent.now.Store(true)
			s.store.put = boom
		}, 500, "internal"),
		"another was faster": answered(func(_ *rig, s *seams) {
			s.store.take = func(context.Context) (convcache.Outcome, bool) { return convcache.Consumed, true }
		}, 200, "consumed"),
		"malformed ticket": answered(func(_ *rig, s *seams) {
			s.connector.prefillParams = func(ticket []byte) error {
				if ticket == nil {
					return nil
				}
				return errors.New("of another version")
			}
		}, 200, "history_rewritten"),
		"no plan at all": answered(func(_ *rig, s *seams) {
			s.connector.prefillParams = func([]byte) error { return errors.New("none") }
		}, 500, "internal"),
		"unsent":         answered(func(_ *rig, s *seams) { s.unsent.now.Store(true) }, 200, "bypass"),
		"client's fault": answered(func(r *rig, _ *seams) { r.prefill[0].next(status(400, "too long")) }, 400, "invalid_request"),
		"client gone before the leg": func(r *rig, s *seams) {
			r.leaves(func(leave context.CancelFunc) {
				s.legs.beforePrefill = func(ctx context.Context) { leave(); <-ctx.Done() }
			})
		},
		"client gone during the leg": func(r *rig, _ *seams) {
			r.leaves(func(leave context.CancelFunc) {
				r.prefill[0].next(func(_ http.ResponseWriter, q *http.Request, _ leg) { leave(); <-q.Context().Done() })
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := &seams{}
			r, clock := stoppedRig(t, setup{deps: all.in})
			r.wantOK(r.turn("d", 1, true), "miss;reason=first_turn")
			clock.advance(r, time.Minute)
			ends(r, all)
			all.unsent.now.Store(false)
			all.legs.stepAside()
			all.connector.prefillParams, all.store.take, all.store.put = nil, nil, nil
			// A refused ticket shows that this turn was the link's trial; a proven link would go on.
			r.wantOK(r.turn("d", 2, true), "miss;reason=retried_without_ticket")
			r.wantOK(r.turn("d", 3, true), "miss;reason=prefill_not_bidirectional")
			if n := r.log.count(`"tried_again_in":"2m0s"`); n != 1 {
				t.Errorf("got %d stops for two minutes, want 1", n)
			}
		})
	}
}

// leaves sends turn 6 of "c" by a client that leaves, and waits until the turn has ended.
func (r *rig) leaves(when func(leave context.CancelFunc)) {
	r.t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	turns := r.lines()
	when(leave)
	_ = r.do(ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(6)...)))
	r.until(func() bool { return r.lines() == turns+1 })
}

func TestTurn_OneTrialAtATime(t *testing.T) {
	r := newRig(t, setup{})
	for _, c := range []string{"c", "d"} {
		r.wantOK(r.turn(c, 1, true), "miss;")
	}
	gate := make(chan struct{})
	r.prefill[0].next(waits(gate, prefills))
	trial := make(chan reply, 1)
	go func() { trial <- r.turn("c", 2, true) }()
	r.prefill[0].await(3)
	r.wantOK(r.turn("d", 2, true), "miss;reason=pair_on_trial")
	close(gate)
	r.wantOK(<-trial, "hit;")
	r.wantOK(r.turn("d", 2, true), "hit;") // the ticket of turn 1 is still there
}
