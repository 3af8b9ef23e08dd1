package server_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/routing"
)

// A conversation that its policy sends to a prefill instance which answers no tickets goes to one that does.
func TestPick_AConversationLeavesAPairThatCannotReuse(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{
		prefills: 3, cfg: func(c *server.Config) { c.ReuseTrialTimeout = soonOver },
		fleet: func(c *fleet.Config) { c.Prefill = &routing.Affinity{Otherwise: &routing.RoundRobin{}} },
	})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	var home *engine
	for _, e := range r.prefill {
		if len(e.seen()) > 0 {
			home = e
		}
	}
	home.always(answersNoTickets)
	r.wantOK(r.turn("c", 2, true), "miss;reason=prefill_not_bidirectional")
	legs := len(home.seen())
	r.wantOK(r.turn("c", 3, true), "hit;")
	r.wantOK(r.turn("c", 4, true), "hit;")
	if n := len(home.seen()) - legs; n != 0 {
		t.Errorf("got %d legs where nothing can be reused, want none", n)
	}
}

// What an attempt knows of an engine's start it knows from one reading, however much depends on it.
func TestHit_ReadsTheIncarnationOfEachEngineOnce(t *testing.T) {
	clock := &clock{}
	r := newRig(t, setup{fleet: func(c *fleet.Config) { c.Now = clock.now }, probeless: true})
	learnShapes(t.Context(), r.deps)
	var reads atomic.Int32
	for _, e := range []*engine{r.prefill[0], r.decode[0]} {
		e.tells(func(w http.ResponseWriter, q *http.Request, l leg) {
			reads.Add(1)
			metricsOf(rigIncarnation, rigBlock)(w, q, l)
		})
	}
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	for turn := 2; turn <= 4; turn++ {
		clock.ahead.Add(int64(6 * time.Second)) // what was read does not count any more
		reads.Store(0)
		if r.wantOK(r.turn("c", turn, true), "hit;"); reads.Load() != 2 {
			t.Errorf("turn %d read the starts of both engines %d times, want twice", turn, reads.Load())
		}
	}
}

// An attempt stays with the incarnations that it was begun with: the ticket of an answer that another incarnation may have given names
// the incarnation that was picked, and is not used.
func TestAttempt_KeepsTheIncarnationItWasBegunWith(t *testing.T) {
	r := newRig(t, setup{})
	r.prefill[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
		r.tell(r.decode[0], metricsOf("1.6e+09", rigBlock))
		r.engine(r.decode[0]).Refresh(q.Context())
		prefills(w, q, l)
	})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.wantStored(1, "yes")
	r.wantOK(r.turn("c", 2, true), "miss;reason=instance_gone")
}

// A start that was read longer than five seconds ago when its ticket is about to be taken has to be seen alive again.
func TestHit_NeedsAHolderThatIsStillAlive(t *testing.T) {
	clock := &clock{}
	r := newRig(t, setup{fleet: func(c *fleet.Config) { c.Now = clock.now }, probeless: true})
	learnShapes(t.Context(), r.deps)
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	asked, tells := 0, r.prefill[0].tokenize
	r.prefill[0].tokenize = func(request string) string {
		if asked++; asked == 1 {
			clock.ahead.Add(int64(6 * time.Second))
			r.decode[0].tells(metricsOf("1.6e+09", rigBlock))
		}
		return tells(request)
	}
	r.wantOK(r.turn("c", 2, true), "miss;reason=instance_gone")
	if asked != 1 {
		t.Errorf("prefill was asked %d times for the ids of the prompt, want once", asked)
	}
}

// Prompts that begin alike go where the beginning is in the prefix cache, with a conversation or without.
func TestPick_APromptGoesWhereItsBeginningIs(t *testing.T) {
	told := &asked{}
	r := newRig(t, setup{prefills: 3, fleet: func(c *fleet.Config) { c.Prefill = told }})
	for _, row := range []struct {
		begins string
		known  bool
	}{{"rules ", false}, {"rules ", true}, {"rules ", true}, {"other ", false}} {
		r.wantOK(r.send(ask("", false, strings.Repeat(row.begins, 3000), "yes", row.begins)), "")
		if told.known != row.known {
			t.Errorf("%q: the policy was told of a beginning: %t", row.begins, told.known)
		}
	}
}

// asked is a policy that picks the last, and keeps whether a candidate has a beginning of the prompt.
type asked struct{ known bool }

func (a *asked) Pick(candidates []upstream.Candidate, _ string) int {
	a.known = slices.ContainsFunc(candidates, func(c upstream.Candidate) bool { return c.Prefix > 0 })
	return len(candidates) - 1
}

func TestIncarnation_UnknownLeavesNoTicket(t *testing.T) {
	r := newRig(t, setup{})
	for n, e := range []*engine{r.prefill[0], r.decode[0]} {
		r.tell(e, metricsOf("", rigBlock))
		r.wantOK(r.turn("c", n+1, true), "miss;reason=ineligible_unproven;why=incarnation")
		r.wantStored(n+1, "ineligible_unproven;why=incarnation")
		r.tell(e, metricsOf(rigIncarnation, rigBlock))
	}
}

// Between the pick of an instance and the take of a ticket its engine may be asked for seconds.
func TestIncarnation_EndsWhileTheTicketIsLookedFor(t *testing.T) {
	seam := &storeSeam{}
	r := newRig(t, setup{deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	seam.peek = func(context.Context) { r.tell(r.decode[0], metricsOf("1.6e+09", rigBlock)) }
	r.wantOK(r.turn("c", 2, true), "miss;reason=instance_gone")
}
