package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/pins"
	"carryover/server/record"
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
func readsIDs(cached *atomic.Int64) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		a := answerOf(l)
		if !l.handsBack() {
			answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":"w","finish_reason":"length","prompt_token_ids":`+list(a.prompt)+
				`}],"kv_transfer_params":`+strings.Replace(handover(l), `"tp_size":1`, fmt.Sprintf(`"tp_size":1,"remote_prefill_cached_tokens":%d`, cached.Load()), 1)+`}`)
			return
		}
		event := fmt.Sprintf(`{"id":"cmpl-%s","object":"text_completion","choices":[{"index":0,"text":" w","finish_reason":null,"prompt_token_ids":%s,"token_ids":[5]}],`+
			`"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d}}`, l.id(), list(a.prompt), len(a.prompt), len(a.prompt)+1)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // vLLM goes on until the connection is dropped
	}
}

// handBackRig is a rig whose turns can be handed back.
func handBackRig(t *testing.T, more ...func(*server.Config)) (*rig, *atomic.Int64) {
	t.Helper()
	r := newRig(t, setup{cfg: func(c *server.Config) {
		handingBack(c)
		for _, change := range more {
			change(c)
		}
	}})
	cached := &atomic.Int64{}
	r.inIDs(nil)
	for _, e := range r.prefill {
		e.always(readsIDs(cached))
	}
	return r, cached
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

func TestHandBack_SendsExactlyTheIDsOfTheTicket(t *testing.T) {
	for _, stream := range []bool{false, true} {
		r, _ := handBackRig(t)
		prompt := count(1, 40)
		r.wantOK(r.sendIDs("c", stream, prompt...), "miss;reason=first_turn")
		r.handBack(0, 0) // a turn may come and use it
		r.handBack(overdue, 1)
		r.handBack(overdue, 1)
		l := r.prefill[0].seen()[1]
		var body struct {
			Model     string
			Prompt    []int
			MaxTokens int  `json:"max_tokens"`
			IgnoreEOS bool `json:"ignore_eos"`
			ReturnIDs bool `json:"return_token_ids"`
		}
		if err := json.Unmarshal([]byte(l.body), &body); err != nil {
			t.Fatal(err)
		}
		want := append(append([]int{}, prompt...), outputIDs()[:9]...) // decode has computed nothing for the last one
		if list(body.Prompt) != list(want) || body.Model != "m" || body.MaxTokens < 16 || !body.IgnoreEOS || !body.ReturnIDs || l.uri != textPath {
			t.Errorf("hand-back: %s %s", l.uri, l.body)
		}
		if p := l.params(); p["remote_num_tokens"] != float64(len(want)) || p["remote_request_id"] != "cmpl-"+r.decode[0].seen()[0].id() {
			t.Errorf("params: %v", p)
		}
	}
}

func TestHandBack_NextTurnHitsByPrefillsOwnCache(t *testing.T) {
	r, cached := handBackRig(t)
	prompt := count(1, 40)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;reason=first_turn")
	r.handBack(overdue, 1)
	cached.Store(48)
	p := r.sendIDs("c", true, continued(prompt)...)
	r.wantOK(p, "hit;tokens=")
	if !strings.Contains(p.reuse(), "proof=engine") {
		t.Errorf("got %q", p.reuse())
	}
	if l := r.prefill[0].seen()[2]; l.ticket() != "" {
		t.Errorf("the turn sent a ticket that was handed back: %s", l.body)
	}
	if c := r.server.Counts().HandBacks; c != (record.HandBacks{Done: 1}) {
		t.Errorf("counted %+v", c)
	}
}

func TestHandBack_MissesSayWhy(t *testing.T) {
	t.Run("evicted", func(t *testing.T) {
		r, _ := handBackRig(t)
		r.sendIDs("c", true, count(1, 40)...)
		r.handBack(overdue, 1)
		r.wantOK(r.sendIDs("c", true, continued(count(1, 40))...), "miss;reason=handed_back_evicted")
	})
	t.Run("of other prompts", func(t *testing.T) { // whose misses say nothing of prefill's cache
		r, _ := handBackRig(t)
		r.sendIDs("c", true, count(1, 40)...)
		for n := 1; n <= 10; n++ {
			r.handBack(overdue, n)
			r.wantOK(r.sendIDs("c", true, count(1000*n, 40)...), "miss;reason=history_rewritten")
		}
		r.handBack(overdue, 11)
	})
	t.Run("untold", func(t *testing.T) {
		r, _ := handBackRig(t)
		r.sendIDs("c", true, count(1, 40)...)
		r.handBack(overdue, 1)
		r.prefill[0].always(prefillsIDs)
		r.wantOK(r.sendIDs("c", true, continued(count(1, 40))...), "miss;reason=hand_back_unreported")
	})
}

func TestHandBack_TurnThatComesSoonerUsesTheTicket(t *testing.T) {
	r, _ := handBackRig(t)
	prompt := count(1, 40)
	r.sendIDs("c", true, prompt...)
	r.wantOK(r.sendIDs("c", true, continued(prompt)...), "hit;tokens=49")
	r.handBack(0, 0)
	r.handBack(overdue, 1) // the second turn's
}

func TestHandBack_NowIsAtTheEndOfTheTurn(t *testing.T) {
	r, _ := handBackRig(t, func(c *server.Config) { c.HandBack = pins.HandBackNow })
	r.sendIDs("c", true, count(1, 40)...)
	r.handBack(0, 1)
}

func TestHandBack_WithoutAConversationInPlaceOfRelease(t *testing.T) {
	r, _ := handBackRig(t)
	p := r.sendIDs("", true, count(1, 155)...) // and ten more fill a block
	r.wantOK(p, "miss;reason=no_conversation")
	r.handBack(0, 1)
	r.wantOK(r.sendIDs("", true, count(1000, 40)...), "miss;reason=no_conversation")
	if l := r.prefill[0].seen()[2]; l.ticket() != "" {
		t.Errorf("a leg carries what was handed back: %s", l.body)
	}
}

func TestHandBack_FinalAndOffAreReleased(t *testing.T) {
	r, _ := handBackRig(t)
	r.wantOK(r.sendTo(textPath, askIDs("c", true, count(1, 40)...), "X-Conversation-Final", "true"), "miss;")
	r.wantOK(r.sendTo(textPath, askIDs("d", true, count(1, 40)...), "X-KV-Reuse", "off"), "off")
	r.handBack(overdue, 0)
	if used := r.server.HandBackMemory(); used != 0 {
		t.Errorf("%d bytes of ids are kept", used)
	}
}

func TestHandBack_WithoutMemoryForIDsTicketsStay(t *testing.T) {
	r, _ := handBackRig(t, func(c *server.Config) { c.HandBackMemory = 8 })
	prompt := count(1, 40)
	r.sendIDs("c", true, prompt...)
	r.handBack(overdue, 0)
	r.wantOK(r.sendIDs("c", true, continued(prompt)...), "hit;tokens=49")
}

func TestHandBack_NotWhilePrefillLetsRequestsWait(t *testing.T) {
	r, _ := handBackRig(t)
	r.sendIDs("c", true, count(1, 40)...)
	r.tell(r.prefill[0], waiting(3))
	r.engine(r.prefill[0]).Refresh(t.Context())
	r.handBack(overdue, 0)
	r.tell(r.prefill[0], waiting(0))
	r.engine(r.prefill[0]).Refresh(t.Context())
	r.handBack(overdue, 1)
}

// waiting is an engine that lets so many requests wait.
func waiting(n int) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		metricsOf(rigIncarnation, rigBlock)(w, r, l)
		_, _ = fmt.Fprintf(w, "vllm:num_requests_waiting{engine=\"0\"} %d\n", n)
	}
}

// refuses and answers500 are engines that answer 400 and 500.
func refuses(w http.ResponseWriter, _ *http.Request, _ leg) {
	http.Error(w, `{"error":{"message":"too long","type":"BadRequestError","code":400}}`, http.StatusBadRequest)
}

func answers500(w http.ResponseWriter, _ *http.Request, _ leg) {
	http.Error(w, `{"error":{"message":"x","type":"InternalServerError","code":500}}`, http.StatusInternalServerError)
}

func TestHandBack_NotOfWhatFillsTheContext(t *testing.T) {
	for tokens, want := range map[int]int{4094: 1, 4095: 0} { // of 4,096
		r, _ := handBackRig(t)
		r.deps.Fleet.Catalogue.Refresh(t.Context())
		r.sendIDs("c", true, count(1, tokens-len(outputIDs())+1)...)
		r.handBack(overdue, want)
	}
}
