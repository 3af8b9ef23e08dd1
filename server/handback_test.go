package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/pins"
)

// handingBack keeps tickets for turns for a while, and then hands them back.
func handingBack(c *server.Config) {
	byTokens(c)
	releasing(c)
	c.HandBack, c.HandBackAfter, c.HandBackMemory = pins.HandBackIdle, 5*time.Second, 1<<20
}

// overdue is when tickets are due.
const overdue = 6 * time.Second

// handsBack reports whether a leg is a hand-back: our own, of ids, with a ticket.
func (l leg) handsBack() bool { return l.streams() && l.ticket() != "" && !l.releases() }

// readsIDs is a prefill instance that answers hand-backs with a first event and then nothing more, and other legs as prefillsIDs, with so many tokens from its
// cache.
func readsIDs(cached int) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		if !l.handsBack() {
			prefilledIDs(w, l, strings.Replace(handover(l), `"tp_size":1`, fmt.Sprintf(`"tp_size":1,"remote_prefill_cached_tokens":%d`, cached), 1))
			return
		}
		prompt := l.prompt()
		event := fmt.Sprintf(`{"id":"cmpl-%s","object":"text_completion","choices":[{"index":0,"text":" w","finish_reason":null,"prompt_token_ids":%s,"token_ids":[5]}],`+
			`"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d}}`, l.id(), list(prompt), len(prompt), len(prompt)+1)
		say(w, event)
		silent(w, r, l) // vLLM goes on until the connection is dropped
	}
}

// handBackRig is a rig whose turns can be handed back.
func handBackRig(t *testing.T, s setup) *rig {
	t.Helper()
	if s.cfg == nil {
		s.cfg = handingBack
	}
	r := newRig(t, s)
	r.inIDs(nil)
	for _, e := range r.prefill {
		e.always(readsIDs(0))
	}
	return r
}

// handBack has everything handed back that is due, and wants so many legs of it.
func (r *rig) handBack(after time.Duration, want int) {
	r.t.Helper()
	r.server.HandBack(r.t.Context(), after)
	n := 0
	for _, e := range r.prefill {
		for _, l := range e.seen() {
			if l.handsBack() {
				n++
			}
		}
	}
	if n != want {
		r.t.Fatalf("%d hand-backs were sent, want %d", n, want)
	}
	if used := r.server.HandBackMemory(); used != 0 && want > 0 {
		r.t.Errorf("%d bytes of ids are kept of what was handed back", used)
	}
}

// continued are the ids of a prompt that continues one whose answer is known, and says more.
func continued(prompt []int) []int {
	return append(append(append([]int{}, prompt...), outputIDs()...), 7, 8, 9)
}

func TestHandBack_TurnThatComesSoonerUsesTheTicket(t *testing.T) {
	r := handBackRig(t, setup{})
	r.sendIDs("c", true, count(1, 40)...)
	r.handBack(0, 0)
	r.wantOK(r.sendIDs("c", true, continued(count(1, 40))...), "hit;tokens=49")
	r.handBack(overdue, 1) // the second turn's
}

func TestHandBack_NotOfAnswersThatNoTurnContinues(t *testing.T) {
	r := handBackRig(t, setup{})
	r.wantOK(r.sendTo(textPath, askIDs("c", true, count(1, 40)...), "X-Conversation-Final", "true"), "miss;")
	r.wantOK(r.sendTo(textPath, askIDs("d", true, count(1, 40)...), "X-KV-Reuse", "off"), "off")
	r.handBack(overdue, 0)
	if used := r.server.HandBackMemory(); used != 0 {
		t.Errorf("%d bytes of ids are kept", used)
	}
}

func TestHandBack_WithoutMemoryForIDsTicketsStay(t *testing.T) {
	r := handBackRig(t, setup{cfg: func(c *server.Config) { handingBack(c); c.HandBackMemory = 8 }})
	r.sendIDs("c", true, count(1, 40)...)
	r.handBack(overdue, 0)
	r.wantOK(r.sendIDs("c", true, continued(count(1, 40))...), "hit;tokens=49")
}

func TestHandBack_NotWhilePrefillLetsRequestsWait(t *testing.T) {
	r := handBackRig(t, setup{})
	r.sendIDs("c", true, count(1, 40)...)
	for want, waiting := range []string{"3", "0"} {
		r.tell(r.prefill[0], func(w http.ResponseWriter, q *http.Request, l leg) {
			metricsOf(rigIncarnation, rigBlock)(w, q, l)
			_, _ = fmt.Fprintln(w, "vllm:num_requests_waiting", waiting)
		})
		r.engine(r.prefill[0]).Refresh(t.Context())
		r.handBack(overdue, want)
	}
}

func TestHandBack_NotOfWhatFillsTheContext(t *testing.T) {
	for tokens, want := range map[int]int{4094: 1, 4095: 0} { // of 4,096
		r := handBackRig(t, setup{})
		r.deps.Fleet.Catalogue.Refresh(t.Context())
		r.sendIDs("c", true, count(1, tokens-len(outputIDs())+1)...)
		r.handBack(overdue, want)
	}
}
