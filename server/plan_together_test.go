package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/turn"
	"carryover/upstream"
)

func TestTogether_BothLegsAreOnTheirWayAtOnce(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := togetherRig(t, setup{})
		r.prefill[0].next(func(w http.ResponseWriter, _ *http.Request, _ leg) {
			r.decode[0].await(1) // which waits for prefill's leg, see togetherRig
			answerJSON(w, `{"choices":[]}`)
		})
		r.wantOK(r.sendTo(textPath, asking(stream)), "miss;reason=ineligible_connector")
		p, d := r.prefill[0].await(1)[0], r.decode[0].await(1)[0]
		for _, l := range []leg{p, d} {
			if got := fmt.Sprint(l.params()["prompt_token_ids"]); got != "[7 8 9]" || l.params()["transfer_id"] != p.params()["transfer_id"] {
				t.Errorf("leg with ids %s of transfer %v, want both legs to have the same", got, l.params()["transfer_id"])
			}
			if strings.Contains(l.body, "stop_token_ids") {
				t.Errorf("%s has a member that the connector takes out", l.body)
			}
		}
	})
}

// asking is a request of a conversation for a text, with a member that the connector takes out.
func asking(stream bool) string {
	return fmt.Sprintf(`{"model":"m","prompt":"abc","stream":%t,"conversation_id":"c","stop_token_ids":[1]}`, stream)
}

// Prefill's count of cached tokens is no part of the hand-over: it becomes no other outcome in the record.
func TestTogether_TheRecordHasTheOutcomeOfTheHeader(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		read := make(chan struct{}, 1)
		c := together{check: func(upstream.PrefillAnswer) error {
			read <- struct{}{}
			return nil
		}}
		r := togetherRig(t, setup{deps: func(d *server.Deps) { d.Connector = c }})
		r.prefill[0].next(func(w http.ResponseWriter, _ *http.Request, _ leg) {
			answerJSON(w, `{"choices":[],"usage":{"prompt_tokens":8192,"prompt_tokens_details":{"cached_tokens":4096}}}`)
		})
		r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
			<-read
			decodes(w, q, l)
		})
		p := r.sendTo(textPath, asking(stream))
		r.wantOK(p, "miss;reason=ineligible_connector")
		if _, line := r.line(); line["outcome"] != "miss" || line["reuse"] != p.reuse() {
			t.Errorf("the line has the outcome %v and the reuse %v, the client has %q", line["outcome"], line["reuse"], p.reuse())
		}
	})
}

// Prefill that has failed, or left nothing for decode, ends decode's leg, which would wait for minutes.
func TestTogether_AFailedPrefillEndsDecode(t *testing.T) {
	answer := func(body string) behaviour { return replyBody("application/json", body) }
	unreadable, unusable := answer(`{`), answer(`{"choices":[],"usage":{"prompt_tokens":13}}`)
	for name, row := range map[string]struct {
		fails  behaviour
		policy turn.PrefillFailure
		status int
		legs   int // of prefill
	}{
		"refused by the engine": {status(400, "too long"), "", 400, 1},
		"engine error":          {status(500, "x"), turn.PrefillError, 502, 1},
		"is decode's alone":     {status(500, "x"), turn.PrefillDecodeOnly, 200, 1},
		"breaks twice":          {hangUp, "", 200, 2}, // a fresh pair of legs is tried once
		"unreadable twice":      {unreadable, "", 200, 2},
		"unreadable":            {unreadable, turn.PrefillError, 502, 1},
		"no hand-over":          {unusable, turn.PrefillError, 502, 1},
		"no hand-over, twice":   {unusable, "", 200, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, stream bool) {
				c := newReserving()
				c.rank, c.Connector = "3", together{check: func(answer upstream.PrefillAnswer) error {
					if answer.PromptTokens == 13 {
						return errors.New("its ids are others")
					}
					return nil
				}}
				r := togetherRig(t, setup{cfg: onPrefillFailure(row.policy), deps: func(d *server.Deps) { d.Connector = c }})
				waiting := make(chan struct{}, 2)
				r.decode[0].always(func(w http.ResponseWriter, q *http.Request, l leg) {
					if l.params() == nil {
						decodes(w, q, l)
						return
					}
					waiting <- struct{}{}
					silent(w, q, l) // for KV that never comes
				})
				r.prefill[0].always(func(w http.ResponseWriter, q *http.Request, l leg) {
					<-waiting
					if got := q.Header.Get("X-Data-Parallel-Rank"); got != "3" {
						t.Errorf("the leg names rank %q, want that of the plan", got)
					}
					row.fails(w, q, l)
				})
				var p reply
				soon(t, "decode's leg goes on without prefill's", func() { p = r.sendTo(textPath, asking(stream)) })
				if p.status != row.status {
					t.Errorf("got status %d (%s), want %d", p.status, p.body, row.status)
				}
				r.decode[0].awaitEnd(row.legs)
				r.prefill[0].wantLegs(row.legs)
				c.wantClosed(t)
			})
		})
	}
}

// A client that leaves ends decode's leg. Prefill's goes on: decode keeps blocks for what it may still write.
func TestTogether_AClientThatLeaves(t *testing.T) {
	r := togetherRig(t, setup{})
	l := newLeaver(t)
	left, answers := make(chan struct{}), make(chan error, 1)
	r.prefill[0].always(func(w http.ResponseWriter, q *http.Request, _ leg) {
		<-left
		answers <- q.Context().Err()
		answerJSON(w, `{"choices":[]}`)
	})
	r.decode[0].always(silent)
	go func() {
		r.prefill[0].await(1)
		r.decode[0].await(1)
		l.leave()
	}()
	_ = r.do(l.ctx, http.MethodPost, textPath, strings.NewReader(asking(true)))
	r.decode[0].awaitEnd(1)
	close(left)
	if err := <-answers; err != nil {
		t.Errorf("prefill's leg is ended: %v", err)
	}
}

// A dead prefill engine is left for another; what the engine refuses the client sees; a prompt that has no ids goes to decode.
func TestTogether_APromptThatIsNotTokenised(t *testing.T) {
	t.Run("engine gone", func(t *testing.T) {
		r := togetherRig(t, setup{deadPrefills: 1})
		r.wantOK(r.sendTo(textPath, asking(true)), "miss;")
		r.prefill[0].wantLegs(1)
	})
	t.Run("refused", func(t *testing.T) {
		r := togetherRig(t, setup{})
		r.prefill[0].tokenize = nil
		r.wantError(r.sendTo(textPath, asking(true)), http.StatusNotFound, "invalid_request")
	})
	t.Run("not comparable", func(t *testing.T) {
		r := togetherRig(t, setup{})
		r.wantOK(r.sendTo(textPath, strings.Replace(asking(true), "{", `{"new_member":1,`, 1)), "miss;")
		r.prefill[0].wantLegs(0)
		r.decode[0].wantLegs(1)
	})
}

// reserving is a connector whose plans reserve something.
type reserving struct {
	upstream.Connector
	rank   string
	opened *atomic.Int32 // plans
	closed *atomic.Int32
}

func newReserving() *reserving { return &reserving{opened: &atomic.Int32{}, closed: &atomic.Int32{}} }

func (c *reserving) Plan(ctx context.Context, t upstream.Transfer) (upstream.Plan, error) {
	plan, err := c.Connector.Plan(ctx, t)
	if err == nil {
		c.opened.Add(1)
		plan.Close, plan.Prefill.Rank = func() { c.closed.Add(1) }, c.rank
	}
	return plan, err
}

// wantClosed waits until each plan is closed, and once: a leg may outlive its turn.
func (c *reserving) wantClosed(t *testing.T) {
	t.Helper()
	soon(t, "plans stay open", func() {
		for c.opened.Load() != c.closed.Load() {
			<-time.After(time.Millisecond)
		}
	})
	if c.opened.Load() == 0 {
		t.Error("no plan was made")
	}
}

// A hand-over that is bound goes to no other decode engine: the turn begins anew with one.
func TestTogether_ABoundDecodeThatRefuses(t *testing.T) {
	r := togetherRig(t, setup{deadDecodes: 1})
	r.wantOK(r.sendTo(textPath, asking(true)), "miss;")
	// The first attempt's prefill leg is cancelled: it may not be sent, or be seen after that of the second.
	p, d := r.prefill[0].seen(), r.decode[0].seen()
	if len(d) != 1 || !slices.ContainsFunc(p, func(l leg) bool { return l.id() == d[0].id() }) {
		t.Errorf("got %d decode legs, want one, of the last attempt", len(d))
	}
}
