package server_test

import (
	"net/http"
	"strconv"
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
	home.always(refusesTickets(silent))
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
	var reads [2]atomic.Int32
	for i, e := range []*engine{r.prefill[0], r.decode[0]} {
		tells := metricsOf(rigIncarnation, rigBlock)
		e.tells(func(w http.ResponseWriter, q *http.Request, l leg) {
			reads[i].Add(1)
			tells(w, q, l)
		})
	}
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	for turn := 2; turn <= 4; turn++ {
		clock.ahead.Add(int64(6 * time.Second)) // what was read does not count any more
		before := [2]int32{reads[0].Load(), reads[1].Load()}
		r.wantOK(r.turn("c", turn, true), "hit;")
		for i, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
			if n := reads[i].Load() - before[i]; n != 1 {
				t.Errorf("turn %d read the start of %s %d times, want once", turn, role, n)
			}
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
	body := func(rules, question string) string {
		return `{"model":"m","max_tokens":8,"messages":[{"role":"system","content":"` + strings.Repeat(rules, 3000) + `"},{"role":"user","content":"` + question + `"}]}`
	}
	for i := range 3 {
		if p := r.send(body("rules ", strconv.Itoa(i))); p.status != http.StatusOK {
			t.Fatalf("status %d", p.status)
		}
		if (told.last != "") != (i > 0) {
			t.Errorf("request %d: the policy was told of a beginning at %q", i, told.last)
		}
	}
	if p := r.send(body("other ", "0")); p.status != http.StatusOK || told.last != "" {
		t.Errorf("another beginning: status %d, the policy was told of one at %q", p.status, told.last)
	}
}

// asked is a policy that picks the last, and keeps which candidate has the longest beginning of the prompt, "" for none.
type asked struct{ last string }

func (a *asked) Pick(candidates []upstream.Candidate, _ string) int {
	a.last = ""
	longest := 0
	for _, c := range candidates {
		if c.Prefix > longest {
			a.last, longest = c.Name, c.Prefix
		}
	}
	return len(candidates) - 1
}
