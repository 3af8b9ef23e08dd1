package server_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// exits is a rig in which hand-backs end otherwise than they should.
type exits struct {
	*rig
	ahead atomic.Int64 // how much later it is in the eyes of the fleet
}

// HandBack implements server.Legs.
func (e *exitLegs) HandBack(ctx context.Context, l upstream.Leg) (upstream.PrefillAnswer, error) {
	return e.unless(ctx, l, e.Legs.HandBack)
}

// Prefill implements server.Legs.
func (e *exitLegs) Prefill(ctx context.Context, l upstream.Leg) (upstream.PrefillAnswer, error) {
	return e.unless(ctx, l, e.Legs.Prefill)
}

func (e *exitLegs) unless(ctx context.Context, l upstream.Leg, run func(context.Context, upstream.Leg) (upstream.PrefillAnswer, error)) (upstream.PrefillAnswer, error) {
	if fail := e.fail.Load(); fail != nil {
		if err := (*fail)(l); err != nil {
			return upstream.PrefillAnswer{}, err
		}
	}
	return run(ctx, l)
}

// exitLegs fails legs to prefill before they are sent.
type exitLegs struct {
	server.Legs
	fail atomic.Pointer[func(upstream.Leg) error]
}

func (e *exitLegs) failing(fail func(upstream.Leg) error) { e.fail.Store(&fail) }

func exitRig(t *testing.T, prefills int, more ...func(*server.Config)) (*exits, *exitLegs) {
	t.Helper()
	e, legs := &exits{}, &exitLegs{}
	e.rig = newRig(t, setup{
		prefills: prefills, probeless: true,
		cfg: func(c *server.Config) {
			handingBack(c)
			for _, change := range more {
				change(c)
			}
		},
		deps: func(d *server.Deps) { legs.Legs, d.Legs = d.Legs, legs },
		fleet: func(c *fleet.Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }
		},
	})
	e.inIDs(nil)
	for _, p := range e.prefill {
		p.always(readsIDs(&atomic.Int64{}))
	}
	return e, legs
}

// fills is a prompt whose answer of ten ids fills a block: of one that fills none, prefill has all blocks, and nothing is handed back.
func fills() []int { return count(1, 2*rigBlock-5) }

func (e *exits) passes(d time.Duration) { e.ahead.Add(int64(d)) }

// look reads all engines now.
func (e *exits) look() {
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, engine := range e.deps.Fleet.Engines(role) {
			engine.Refresh(e.t.Context())
		}
	}
}

// released is how many legs engines have seen of which prefill reads nothing.
func (e *exits) released() (n int) {
	for _, p := range e.prefill {
		for _, l := range p.seen() {
			if l.ticket() != "" && l.params()["remote_num_tokens"] == 0.0 {
				n++
			}
		}
	}
	return n
}

// rounds lets time pass with all that works beside the turns.
func (e *exits) rounds() {
	for n := range 4 {
		e.passes(6 * time.Second)
		e.look()
		e.server.HandBack(e.t.Context(), overdue+time.Duration(n+1)*2*time.Second)
		for e.server.ReleaseOne(e.t.Context(), e.engine(e.decode[0])) {
		}
	}
}

// Whatever becomes of a hand-back, its answer is handed back later, released, or a ticket; none is forgotten before decode's TTL ends.
func TestHandBack_EveryExitKeepsTheBlocksInView(t *testing.T) {
	const (
		handedBack = "handed back"
		released   = "released"
		ticket     = "a ticket"
		counted    = "counted" // it is certain that nobody can free the blocks, and they are counted
	)
	down := func(e *engine) func(r *exits, _ *exitLegs) (mend func()) {
		return func(r *exits, _ *exitLegs) func() {
			r.engine(e).Refused() // a connection was, and nothing was read since
			return func() { r.engine(e).Health.Answered() }
		}
	}
	failing := func(err upstream.LegError) func(r *exits, legs *exitLegs) func() {
		return func(_ *exits, legs *exitLegs) func() {
			legs.failing(func(upstream.Leg) error { return &err })
			return func() { legs.failing(func(upstream.Leg) error { return nil }) }
		}
	}
	scripted := func(act behaviour) func(r *exits, legs *exitLegs) func() {
		return func(r *exits, _ *exitLegs) func() {
			r.prefill[0].next(act)
			return func() {}
		}
	}
	for name, tc := range map[string]struct {
		exit  func(r *exits, legs *exitLegs) (mend func())
		want  string
		homed bool // whether it belongs to a conversation; the others are tried as well
		both  bool
	}{
		"prefill does not answer for seconds": {exit: func(r *exits, l *exitLegs) func() { return down(r.prefill[0])(r, l) }, want: handedBack, both: true},
		"decode does not answer for seconds":  {exit: func(r *exits, l *exitLegs) func() { return down(r.decode[0])(r, l) }, want: handedBack, both: true},
		"prefill can't be read when it begins": {exit: func(r *exits, _ *exitLegs) func() {
			r.prefill[0].tells(func(w http.ResponseWriter, _ *http.Request, _ leg) { http.Error(w, "", http.StatusServiceUnavailable) })
			r.passes(6 * time.Second)
			return func() { r.prefill[0].tells(metricsOf(rigIncarnation, rigBlock)) }
		}, want: handedBack, both: true},
		"the pair is stopped": {exit: func(r *exits, _ *exitLegs) func() {
			pairState := r.engine(r.prefill[0]).Last().PairWith(r.engine(r.decode[0]).Last())
			pairState.Begin("")
			pairState.End(pairs.Unanswered, "")
			return func() { r.passes(2 * time.Minute) }
		}, want: handedBack, homed: true},
		"the pair is stopped, no conversation": {exit: func(r *exits, _ *exitLegs) func() {
			pairState := r.engine(r.prefill[0]).Last().PairWith(r.engine(r.decode[0]).Last())
			pairState.Begin("")
			pairState.End(pairs.Unanswered, "")
			return func() {}
		}, want: released},
		"not sent":   {exit: failing(upstream.LegError{Role: upstream.RolePrefill, Kind: upstream.Broken, Err: errors.New("x")}), want: handedBack, both: true},
		"too many":   {exit: scripted(status(http.StatusTooManyRequests, "x")), want: handedBack, both: true},
		"refused":    {exit: scripted(refuses), want: released, both: true},
		"500":        {exit: scripted(answers500), want: released, both: true},
		"hung up":    {exit: scripted(hangUp), want: released, both: true},
		"no stream":  {exit: scripted(replyBody("application/json", `{"id":"x"}`)), want: released, both: true},
		"no choices": {exit: scripted(replyBody("text/event-stream", "data: [DONE]\n\n")), want: released, both: true},
		"no answer": {exit: failing(upstream.LegError{
			Role: upstream.RolePrefill, Kind: upstream.Timeout, Sent: true, Err: upstream.ErrReuseTimeout,
		}), want: released, both: true},
		"a defect": {exit: func(_ *exits, legs *exitLegs) func() {
			legs.failing(func(upstream.Leg) error { panic("x") })
			return func() { legs.failing(func(upstream.Leg) error { return nil }) }
		}, want: released, both: true},
		"prefill is quarantined": {exit: func(r *exits, _ *exitLegs) func() {
			r.engine(r.prefill[0]).Last().Quarantine()
			return func() {}
		}, want: ticket, homed: true},
	} {
		for _, conversation := range []string{"c", ""} {
			if !tc.both && tc.homed != (conversation != "") {
				continue
			}
			t.Run(name+" "+conversation, func(t *testing.T) {
				r, legs := exitRig(t, 1, func(c *server.Config) { c.ReuseTrialTimeout = patience })
				r.look()
				r.wantOK(r.sendIDs(conversation, true, fills()...), "miss;")
				mend := tc.exit(r, legs)
				r.try(t)
				pinned := r.server.Pins.Pinned(r.engine(r.decode[0]))
				mend()
				r.look()
				if tc.want != ticket { // of that its next turn sees
					r.rounds()
				}
				got := ""
				switch {
				case r.released() > 0:
					got = released
				case r.server.Counts().HandBacks.Done > 0:
					got = handedBack
				case r.store.Len() > 0:
					got = ticket
				case pinned > 0:
					got = counted
				}
				if got != tc.want {
					t.Errorf("the answer is %s, want %s; %+v, pinned %d", got, tc.want, r.server.Counts().HandBacks, pinned)
				}
				if left := r.server.Pins.Pinned(r.engine(r.decode[0])); tc.want != ticket && left != 0 {
					t.Errorf("%d tokens are pinned at the end, want none", left)
				}
				if used := r.server.HandBackMemory(); used != 0 && tc.want != ticket {
					t.Errorf("%d bytes of ids are kept at the end", used)
				}
				if tickets := r.named(); len(tickets) == 2 && tickets[0] == tickets[1] { // the first leg has read nothing, or is over
					r.refused = tickets[:1]
				}
			})
		}
	}
}

// try has what is due handed back once; a defect of that is survived, as it is beside the turns.
func (e *exits) try(t *testing.T) {
	t.Helper()
	defer func() { _ = recover() }()
	e.server.HandBack(t.Context(), overdue)
}

// named are the tickets that legs have named.
func (e *exits) named() (all []string) {
	for _, p := range e.prefill {
		for _, l := range p.seen() {
			if l.ticket() != "" {
				all = append(all, l.ticket())
			}
		}
	}
	return all
}

// A ticket that prefill was sent and has not answered is released by that prefill alone, later: it may read the blocks yet.
func TestHandBack_UnansweredIsReleasedByItsReaderAlone(t *testing.T) {
	for name, over := range map[string]bool{"the reader goes on": false, "the reader is over": true} {
		t.Run(name, func(t *testing.T) {
			r, _ := exitRig(t, 2)
			r.look()
			r.wantOK(r.sendIDs("c", true, fills()...), "miss;")
			r.wantOK(r.sendIDs("", true, fills()...), "miss;") // the other prefill may release, too
			r.prefill[0].next(answers500, answers500)
			r.server.HandBack(t.Context(), overdue)
			r.server.HandBack(t.Context(), overdue)
			legs := len(r.prefill[0].seen()) + len(r.prefill[1].seen())
			decode := r.engine(r.decode[0])
			for _, p := range r.prefill {
				r.engine(p).Last().PairWith(decode.Last()).ExchangedKV()
			}
			if r.server.ReleaseOne(t.Context(), decode) {
				t.Error("it is released before prefill has heard that the leg was dropped")
			}
			r.passes(6 * time.Second)
			if over {
				r.prefill[0].tells(metricsOf("1.6e+09", rigBlock))
			} else {
				r.engine(r.prefill[0]).Last().Quarantine() // it gets no leg
			}
			r.look()
			for r.server.ReleaseOne(t.Context(), decode) {
			}
			if got := len(r.prefill[0].seen()) + len(r.prefill[1].seen()) - legs; got != map[bool]int{false: 0, true: 2}[over] {
				t.Errorf("%d legs were sent to release it", got)
			}
			r.refused = append(r.refused, r.twice()...)
		})
	}
}

// twice are the tickets that two legs have named.
func (e *exits) twice() (all []string) {
	n := map[string]int{}
	for _, ticket := range e.named() {
		if n[ticket]++; n[ticket] == 2 {
			all = append(all, ticket)
		}
	}
	return all
}

// An answer without a conversation whose legs are never sent is released in the end: no turn would ever use it.
func TestHandBack_UnsentIsTriedThreeTimes(t *testing.T) {
	r, legs := exitRig(t, 1)
	tried := 0
	r.look()
	r.wantOK(r.sendIDs("", true, fills()...), "miss;")
	legs.failing(func(upstream.Leg) error {
		tried++
		return &upstream.LegError{Role: upstream.RolePrefill, Kind: upstream.Broken, Err: errors.New("x")}
	})
	for n := range 6 {
		r.server.HandBack(t.Context(), overdue+time.Duration(n)*2*time.Second)
	}
	was := tried
	legs.failing(func(upstream.Leg) error { return nil })
	r.passes(6 * time.Second)
	r.look()
	if !r.server.ReleaseOne(t.Context(), r.engine(r.decode[0])) || was != 3 || r.released() != 1 {
		t.Errorf("tried %d times and released %d times, want 3 and 1", was, r.released())
	}
}

// A turn that could not send its ticket leaves it as it was.
func TestHandBack_OfATicketThatWasPutBack(t *testing.T) {
	r, legs := exitRig(t, 1)
	r.look()
	r.wantOK(r.sendIDs("c", true, fills()...), "miss;")
	legs.failing(func(upstream.Leg) error {
		return &upstream.LegError{Role: upstream.RolePrefill, Instance: "prefill-0", Kind: upstream.Dial, Err: errors.New("x")}
	})
	r.wantOK(r.sendIDs("c", true, continued(fills())...), "miss;")
	legs.failing(func(upstream.Leg) error { return nil })
	r.rounds()
	if done := r.server.Counts().HandBacks.Done; done != 1 || r.store.Len() != 1 {
		t.Errorf("%d hand-backs of the ticket, want 1", done)
	}
}

// Where the instance of a ticket is away for long, or its pair is stopped, another instance reads it.
func TestHandBack_GoesElsewhere(t *testing.T) {
	for name, tc := range map[string]struct {
		event func(r *exits)
		after []time.Duration // of the rounds, of which the last hands back
	}{
		"away for long": {func(r *exits) { r.engine(r.prefill[0]).Refused() }, []time.Duration{0, awayLong}},
		"restarted": {func(r *exits) {
			r.engine(r.prefill[0]).Refused() // turns go to the other one, too
			r.prefill[0].tells(metricsOf("1.6e+09", rigBlock))
		}, []time.Duration{0, awayLong}},
		"quarantined": {func(r *exits) { r.engine(r.prefill[0]).Last().Quarantine() }, []time.Duration{0}},
		"the pair is stopped": {func(r *exits) {
			pairState := r.engine(r.prefill[0]).Last().PairWith(r.engine(r.decode[0]).Last())
			pairState.Begin("")
			pairState.End(pairs.Unanswered, "")
			r.engine(r.prefill[0]).Health.Unanswered(time.Now()) // turns go to the other one, too
		}, []time.Duration{0, 2 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := exitRig(t, 2)
			r.look()
			r.wantOK(r.sendIDs("c", true, count(1, 100)...), "miss;")
			tc.event(r)
			for _, after := range tc.after {
				r.server.HandBack(t.Context(), overdue+after)
			}
			r.server.HandBack(t.Context(), overdue+2*awayLong) // of a queue that has just been made
			if n := len(r.prefill[1].seen()); n != 1 || r.server.Counts().HandBacks.Done != 1 {
				t.Errorf("the other instance has got %d legs, want the hand-back: %+v", n, r.server.Counts().HandBacks)
			}
		})
	}
}

// awayLong is longer than tickets wait for an instance that does not answer.
const awayLong = 15 * time.Second
