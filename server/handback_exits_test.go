package server_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
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
	clock
	fails func() error // of legs to prefill, before they are sent; nil for none
}

// exitLegs are the legs of a rig of exits.
type exitLegs struct {
	upstream.Legs
	of *exits
}

// HandBack implements upstream.Legs.
func (e exitLegs) HandBack(ctx context.Context, l upstream.Leg) (answer upstream.PrefillAnswer, err error) {
	if e.of.fails != nil {
		return answer, e.of.fails()
	}
	return e.Legs.HandBack(ctx, l)
}

// Prefill implements upstream.Legs.
func (e exitLegs) Prefill(ctx context.Context, l upstream.Leg) (answer upstream.PrefillAnswer, err error) {
	if e.of.fails != nil {
		return answer, e.of.fails()
	}
	return e.Legs.Prefill(ctx, l)
}

func exitRig(t *testing.T, prefills int) *exits {
	t.Helper()
	e := &exits{}
	e.rig = handBackRig(t, setup{
		prefills: prefills, probeless: true,
		deps:  func(d *server.Deps) { d.Legs = exitLegs{d.Legs, e} },
		fleet: func(c *fleet.Config) { c.Now = e.now },
	})
	e.look()
	return e
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

// releases has all released that can be.
func (e *exits) releases() (n int) {
	for e.server.ReleaseOne(e.t.Context(), e.engine(e.decode[0])) {
		n++
	}
	return n
}

// rounds lets time pass with all that works beside the turns.
func (e *exits) rounds() {
	for n := range 4 {
		e.passes(6 * time.Second)
		e.look()
		e.server.HandBack(e.t.Context(), overdue+time.Duration(n+1)*2*time.Second)
		e.server.TakeLate(e.t.Context())
		e.releases()
	}
}

// stops has the pair of the first prefill stopped.
func (e *exits) stops() {
	pair := e.engine(e.prefill[0]).Last().PairWith(e.engine(e.decode[0]).Last())
	pair.Begin("")
	pair.End(pairs.Unanswered, "")
}

// unsentLeg is what a leg comes to that was not sent.
func unsentLeg(kind upstream.Kind) error {
	return &upstream.LegError{Role: upstream.RolePrefill, Instance: "prefill-0", Kind: kind, Err: errors.New("x")}
}

// forgive permits what two legs have named: the first has read nothing, or is over.
func (e *exits) forgive() {
	times := map[string]int{}
	for _, p := range e.prefill {
		for _, l := range p.seen() {
			if times[l.ticket()]++; l.ticket() != "" && times[l.ticket()] == 2 {
				e.refused = append(e.refused, l.ticket())
			}
		}
	}
}

// Whatever becomes of a hand-back, its answer is handed back later, released, or a ticket; none is forgotten before decode's TTL ends.
func TestHandBack_EveryExitKeepsTheBlocksInView(t *testing.T) {
	const handedBack, released, ticket = "handed back", "released", "a ticket"
	answers := func(act behaviour) func(*exits) { return func(r *exits) { r.prefill[0].next(act) } }
	fails := func(err error) func(*exits) { return func(r *exits) { r.fails = func() error { return err } } }
	for name, tc := range map[string]struct {
		exit  func(r *exits)
		want  string
		later time.Duration // that passes then
		other string        // of an answer without a conversation, if not want
	}{
		"prefill does not answer for seconds": {exit: func(r *exits) { r.engine(r.prefill[0]).Refused() }, want: handedBack},
		"decode does not answer for seconds":  {exit: func(r *exits) { r.engine(r.decode[0]).Refused() }, want: handedBack},
		"prefill can't be read when it begins": {exit: func(r *exits) {
			r.prefill[0].tells(status(http.StatusServiceUnavailable, ""))
			r.passes(6 * time.Second)
		}, want: handedBack},
		"the pair is stopped": {exit: (*exits).stops, want: handedBack, later: 2 * time.Minute, other: released},
		"not sent":            {exit: fails(unsentLeg(upstream.Broken)), want: handedBack},
		"too many":            {exit: answers(status(http.StatusTooManyRequests, "x")), want: handedBack},
		"refused":             {exit: answers(status(400, "x")), want: released},
		"500":                 {exit: answers(status(500, "x")), want: released},
		"hung up":             {exit: answers(hangUp), want: released},
		"no stream":           {exit: answers(replyBody("application/json", `{"id":"x"}`)), want: released},
		"no choices":          {exit: answers(replyBody("text/event-stream", "data: [DONE]\n\n")), want: released},
		"no answer": {exit: fails(&upstream.LegError{
			Role: upstream.RolePrefill, Kind: upstream.Timeout, Sent: true, Err: upstream.ErrReuseTimeout,
		}), want: released},
		"a defect":               {exit: func(r *exits) { r.fails = func() error { panic("x") } }, want: released},
		"prefill is quarantined": {exit: func(r *exits) { r.quarantine(r.prefill[0]) }, want: ticket},
	} {
		for _, conversation := range []string{"c", ""} {
			if conversation == "" {
				tc.want = cmp.Or(tc.other, tc.want)
			}
			if conversation == "" && tc.want == ticket { // which only a conversation has
				continue
			}
			t.Run(name+" "+conversation, func(t *testing.T) {
				r := exitRig(t, 1)
				r.wantOK(r.sendIDs(conversation, true, fills()...), "miss;")
				tc.exit(r)
				func() {
					defer func() { _ = recover() }() // a defect is survived beside the turns
					r.server.HandBack(t.Context(), overdue)
				}()
				r.fails = nil
				for _, e := range []*engine{r.prefill[0], r.decode[0]} {
					e.tells(metricsOf(rigIncarnation, rigBlock))
					r.engine(e).Health.Answered()
				}
				r.passes(tc.later)
				r.look()
				if tc.want != ticket { // of that its next turn sees
					r.rounds()
				}
				got, done := "", r.server.Counts().HandBacks.Done
				switch {
				case r.prefill[0].releases() > 0:
					got = released
				case done > 0:
					got = handedBack
				case r.store.Len() > 0:
					got = ticket
				}
				pinned, kept := r.server.Pins.Pinned(r.engine(r.decode[0])), r.server.HandBackMemory()
				if got != tc.want || tc.want != ticket && (pinned != 0 || kept != 0) {
					t.Errorf("the answer is %s, want %s; %d hand-backs, %d tokens pinned, %d bytes of ids", got, tc.want, done, pinned, kept)
				}
				r.forgive()
			})
		}
	}
}

// A ticket that prefill was sent and has not answered is released by that prefill alone, later: it may read the blocks yet.
func TestHandBack_UnansweredIsReleasedByItsReaderAlone(t *testing.T) {
	for _, over := range []bool{false, true} {
		r := exitRig(t, 2)
		r.wantOK(r.sendIDs("c", true, fills()...), "miss;")
		r.wantOK(r.sendIDs("", true, fills()...), "miss;") // the other prefill may release, too
		r.prefill[0].next(status(500, "x"), status(500, "x"))
		r.server.HandBack(t.Context(), overdue)
		r.server.HandBack(t.Context(), overdue)
		for _, p := range r.prefill {
			r.engine(p).Last().PairWith(r.engine(r.decode[0]).Last()).ExchangedKV()
		}
		if r.releases() > 0 {
			t.Error("it is released before prefill has heard that the leg was dropped")
		}
		r.passes(6 * time.Second)
		if over {
			r.prefill[0].tells(metricsOf("1.6e+09", rigBlock))
		} else {
			r.quarantine(r.prefill[0]) // it gets no leg
		}
		r.look()
		if got, want := r.releases(), map[bool]int{true: 2}[over]; got != want {
			t.Errorf("the reader is over: %t; %d legs were sent to release it, want %d", over, got, want)
		}
		r.forgive()
	}
}

// A turn that could not send its ticket leaves it as it was.
func TestHandBack_OfATicketThatWasPutBack(t *testing.T) {
	r := exitRig(t, 1)
	r.wantOK(r.sendIDs("c", true, fills()...), "miss;")
	r.fails = func() error { return unsentLeg(upstream.Dial) }
	r.wantOK(r.sendIDs("c", true, continued(fills())...), "miss;")
	r.fails = nil
	r.rounds()
	if done := r.server.Counts().HandBacks.Done; done != 1 || r.store.Len() != 1 {
		t.Errorf("%d hand-backs of the ticket, want 1", done)
	}
}

// A ticket whose prefill has ended or is quarantined stays one, for a turn on another instance.
func TestHandBack_StaysATicketWithoutItsPrefill(t *testing.T) {
	for name, event := range map[string]func(r *exits){
		"restarted": func(r *exits) {
			r.engine(r.prefill[0]).Refused() // turns go to the other one, too
			r.prefill[0].tells(metricsOf("1.6e+09", rigBlock))
		},
		"quarantined": func(r *exits) { r.quarantine(r.prefill[0]) },
	} {
		r := exitRig(t, 2)
		r.wantOK(r.sendIDs("c", true, count(1, 100)...), "miss;")
		event(r)
		r.engine(r.prefill[0]).Refresh(t.Context())
		for range 2 { // the first round opens the queue
			r.server.HandBack(t.Context(), overdue)
		}
		if n, kept := len(r.prefill[1].seen()), r.server.HandBackMemory(); n != 0 || kept != 0 || r.store.Len() != 1 {
			t.Errorf("%s: the other instance has got %d legs, and %d bytes of ids are kept; %d conversations have a ticket", name, n, kept, r.store.Len())
		}
	}
}

// releases is how many legs of which prefill reads nothing have come.
func (e *engine) releases() (n int) {
	for _, l := range e.seen() {
		if l.ticket() != "" && l.params()["remote_num_tokens"] == 0.0 {
			n++
		}
	}
	return n
}
