package server_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/body"
)

// staged is a connector whose prefill gives the first of the answer, and whose decode is asked when the KV has arrived, as
// LMCache's is: the client's first event comes from prefill, and decode's are rewritten.
type staged struct {
	server.Connector
	ready func(ctx context.Context) error
	head  []byte
	whole []byte
	takes bool
	late  bool // decode may be asked to take the KV behind the client's leg
}

func (c staged) Plan(t upstream.Transfer) (upstream.Plan, error) {
	plan, err := c.Connector.Plan(t)
	if err != nil {
		return plan, err
	}
	plan.Order, plan.Ready = upstream.AfterReady, c.ready
	if c.late {
		plan.Late = func() upstream.LegPlan {
			return upstream.LegPlan{RequestID: t.RequestID + "-late", Members: []body.Member{{Name: "taking", Value: []byte("1")}}}
		}
	}
	handover := plan.Handover
	plan.Handover = func(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
		h, err := handover(answer)
		if err == nil {
			h.Whole, h.Rewrite, h.Head = c.whole, shouting{}, c.head
			leg := h.Leg
			h.Leg = func(ids []byte) upstream.LegPlan {
				plan := leg(ids)
				plan.Members = append(plan.Members, body.Member{Name: "max_tokens", Value: []byte("499")})
				return plan
			}
			if c.takes {
				h.Take = func([]byte) upstream.LegPlan {
					return upstream.LegPlan{RequestID: t.RequestID + "-take", Members: []body.Member{{Name: "taking", Value: []byte("1")}}}
				}
			}
			if !bytes.Contains(answer.Body, answer.Params) {
				return nil, errors.New("an answer without its params")
			}
		}
		return h, err
	}
	return plan, nil
}

// shouting rewrites what decode says, and leaves out what it says of the role.
type shouting struct{}

func (shouting) Event(data []byte) []byte {
	if bytes.Contains(data, []byte(`"role"`)) {
		return nil
	}
	return bytes.ReplaceAll(data, []byte("world"), []byte("WORLD"))
}

func (shouting) Body(body []byte) ([]byte, error) {
	return bytes.ReplaceAll(body, []byte("world"), []byte("WORLD")), nil
}

func stagedRig(t *testing.T, c staged) *rig {
	t.Helper()
	return newRig(t, setup{deps: c.in})
}

func (c staged) in(d *server.Deps) {
	c.Connector = d.Connector
	d.Connector = c
}

// gated is KV that arrives when the gate opens.
func gated(gate <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestStaged_TheHeadComesBeforeDecodeIsAsked(t *testing.T) {
	ready := make(chan struct{})
	r := stagedRig(t, staged{head: []byte(frames(`{"head":1}`)), ready: gated(ready)})
	resp, err := r.open(context.Background(), http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len(frames(`{"head":1}`)))
	if _, err := resp.Body.Read(first); err != nil || string(first) != frames(`{"head":1}`) {
		t.Fatalf("first comes %q (%v), want the head", first, err)
	}
	if n := len(r.decode[0].seen()); n != 0 {
		t.Errorf("decode was asked %d times before the KV had arrived", n)
	}
	close(ready)
	p := r.rest(resp)
	if p.err != nil || !strings.Contains(p.body, "WORLD") || strings.Contains(p.body, "role") || !strings.HasSuffix(p.body, "data: [DONE]\n\n") ||
		!strings.Contains(p.body, `"finish_reason":"stop"`) || strings.Contains(p.body, "kv_transfer_params") {
		t.Errorf("then comes %q (%v), want decode's events as the connector has them", p.body, p.err)
	}
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("got content type %q", got)
	}
	r.wantStored(1, "yes")
}

func TestStaged_AWholeAnswerIsRewritten(t *testing.T) {
	r := stagedRig(t, staged{head: []byte("not for this client"), ready: func(context.Context) error { return nil }})
	p := r.turn("c", 1, false)
	r.wantOK(p, "miss;reason=first_turn")
	if !strings.Contains(p.body, "WORLD") || strings.Contains(p.body, "not for") {
		t.Errorf("got %s", p.body)
	}
}

func TestStaged_KVThatDoesNotArrive(t *testing.T) {
	never := make(chan struct{})
	short := func(c *server.Config) { c.HandoverBudget = 50 * time.Millisecond }
	for name, row := range map[string]struct {
		ready  func(context.Context) error
		status int
		code   string
	}{
		"in time":             {gated(never), http.StatusGatewayTimeout, "decode_timeout"},
		"the connector fails": {func(context.Context) error { return errors.New("socket closed") }, http.StatusBadGateway, "decode_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			c := staged{ready: row.ready}
			r := newRig(t, setup{cfg: short, deps: c.in})
			r.wantError(r.turn("c", 1, true), row.status, row.code)
			r.wantError(r.turn("c", 1, false), row.status, row.code)
			c.head = []byte(frames(`{"head":1}`))
			r = newRig(t, setup{cfg: short, deps: c.in})
			p := r.turn("c", 1, true)
			if rest := lastError(t, p.body, row.code); rest != string(c.head) || p.err == nil || strings.Contains(p.body, "[DONE]") {
				t.Errorf("got %q (%v), want the head, the error, and an end that shows the break", p.body, p.err)
			}
			if n := len(r.decode[0].seen()); n != 0 {
				t.Errorf("decode was asked %d times", n)
			}
		})
	}
}

// A client that leaves while the KV is on its way strands nothing, and decode does not look for it before it has arrived.
func TestStaged_AClientThatLeavesWhileTheKVIsOnItsWay(t *testing.T) {
	const budget = time.Hour
	l, ready, waited := newLeaver(t), make(chan struct{}), make(chan struct{}, 2)
	c := staged{ready: func(ctx context.Context) error {
		if ends, ok := ctx.Deadline(); !ok || time.Until(ends) < budget/2 {
			t.Errorf("it is waited for until %v, want as long as the hand-over budget lasts: KV that comes later would stay for ever", ends)
		}
		waited <- struct{}{}
		return gated(ready)(ctx)
	}}
	r := newRig(t, setup{deps: c.in, cfg: func(c *server.Config) { c.HandoverBudget = budget }})
	go func() {
		<-waited
		l.leave()
	}()
	_ = r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
	<-waited // once more, without the client
	if n := len(r.decode[0].seen()); n != 0 {
		t.Errorf("decode was asked %d times before the KV had arrived", n)
	}
	close(ready)
	d := r.decode[0].await(1)[0]
	if !strings.Contains(d.body, `"max_tokens":1,`) || strings.Contains(d.body, `"max_tokens":499`) {
		t.Errorf("decode is asked for %s, want one token", d.body)
	}
	r.decode[0].awaitEnd(1)
}

func TestStaged_PrefillHasTheWholeAnswer(t *testing.T) {
	for stream, whole := range map[bool]string{true: frames(`{"all":1}`, "[DONE]"), false: `{"all":1}`} {
		r := stagedRig(t, staged{whole: []byte(whole), ready: func(context.Context) error { panic("nothing is to arrive") }})
		p := r.turn("c", 1, stream)
		r.wantOK(p, "miss;")
		if p.body != whole {
			t.Errorf("got %q, want %q", p.body, whole)
		}
		if n := len(r.decode[0].seen()); n != 0 {
			t.Errorf("decode was asked %d times, want not at all", n)
		}
	}
}

// With a head, what decode tells of the prompt's ids is compared as without.
func TestStaged_AHeadLosesNoTicket(t *testing.T) {
	ready := func(context.Context) error { return nil }
	for _, head := range [][]byte{nil, []byte(frames(`{"head":1}`))} {
		c := staged{ready: ready, head: head}
		r := newRig(t, setup{cfg: byTokens, deps: c.in})
		r.inIDs(nil)
		r.sendIDs("c", true, count(100, 200)...)
		r.wantStored(1, "yes")
	}
}

// What a plan has reserved is given back on every exit, also by what goes on without the client.
func TestStaged_PlansAreClosed(t *testing.T) {
	never := make(chan struct{})
	for name, row := range map[string]struct {
		ready func(context.Context) error
		fails behaviour
	}{
		"served":          {func(context.Context) error { return nil }, nil},
		"no KV":           {gated(never), nil},
		"prefill fails":   {nil, status(400, "x")},
		"prefill is gone": {nil, hangUp},
	} {
		t.Run(name, func(t *testing.T) {
			c := newReserving()
			r := newRig(t, setup{cfg: func(c *server.Config) { c.HandoverBudget = 50 * time.Millisecond }, deps: func(d *server.Deps) {
				c.Connector = staged{Connector: d.Connector, ready: row.ready}
				d.Connector = c
			}})
			if row.fails != nil {
				r.prefill[0].always(row.fails)
			}
			_ = r.turn("c", 1, true)
			c.wantClosed(t)
		})
	}
	t.Run("the client leaves", func(t *testing.T) {
		l, waited, c := newLeaver(t), make(chan struct{}, 2), newReserving()
		ready := make(chan struct{})
		r := newRig(t, setup{deps: func(d *server.Deps) {
			c.Connector = staged{Connector: d.Connector, ready: func(ctx context.Context) error {
				waited <- struct{}{}
				return gated(ready)(ctx)
			}}
			d.Connector = c
		}})
		go func() {
			<-waited
			l.leave()
		}()
		_ = r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
		<-waited
		if n := c.closed.Load(); n != 0 {
			t.Errorf("%d plans are closed that something still waits with", n)
		}
		close(ready)
		c.wantClosed(t)
	})
}

// A pair whose KV is not announced twice in a row is left to decode alone: each such turn costs the whole hand-over budget.
func TestStaged_APairThatAnnouncesNothing(t *testing.T) {
	c := staged{ready: gated(make(chan struct{}))}
	r := newRig(t, setup{cfg: func(c *server.Config) { c.HandoverBudget = 20 * time.Millisecond }, deps: c.in})
	for range 2 {
		r.wantError(r.turn("", 1, true), http.StatusGatewayTimeout, "decode_timeout")
	}
	p := r.turn("", 1, true)
	r.wantOK(p, "miss;")
	if got := p.header.Get("X-KV-Path"); !strings.HasPrefix(got, "decode_only;reason=not_announced;") {
		t.Errorf("got path %q, want decode alone", got)
	}
	if n := len(r.prefill[0].seen()); n != 2 {
		t.Errorf("got %d prefill legs, want 2", n)
	}
}

// What decode's leg leaves is taken before it, for nobody; and behind an answer that prefill has whole.
func TestStaged_DecodeTakesWhatWouldStay(t *testing.T) {
	ready := func(context.Context) error { return nil }
	taking := func(l leg) bool {
		return strings.Contains(l.body, `"taking":1`) && strings.Contains(l.body, `"max_tokens":1`) && !strings.Contains(l.body, `"stream":true`)
	}
	for _, stream := range []bool{true, false} {
		r := stagedRig(t, staged{ready: ready, takes: true})
		p := r.turn("c", 1, stream)
		r.wantOK(p, "miss;reason=first_turn")
		if legs := r.decode[0].seen(); len(legs) != 2 || !taking(legs[0]) || taking(legs[1]) || !strings.Contains(p.body, "WORLD") {
			t.Errorf("stream %t: decode saw %v, want the leg that takes and then its own; the client %q", stream, legs, p.body)
		}
		r = stagedRig(t, staged{ready: ready, takes: true})
		r.decode[0].next(status(http.StatusInternalServerError, "{}"))
		r.wantOK(r.turn("c", 1, stream), "miss;reason=first_turn") // what fails for nobody costs nobody his answer

		r = stagedRig(t, staged{ready: ready, takes: true, whole: []byte(`{"all":1}`)})
		if p := r.turn("c", 1, stream); p.body != `{"all":1}` {
			t.Errorf("stream %t: got %q, want what prefill has", stream, p.body)
		}
		if legs := r.decode[0].await(1); len(legs) != 1 || !taking(legs[0]) {
			t.Errorf("stream %t: decode saw %v, want the leg that takes", stream, legs)
		}
		r.decode[0].awaitEnd(1)
	}
}

// Decode's first event says nothing of the KV. An engine that fails behind it may have left the KV unread, although the client has had the
// head for long.
func TestStaged_DecodeThatFailsBehindItsFirstEventTakesTheKV(t *testing.T) {
	r := stagedRig(t, staged{head: []byte(frames(`{"head":1}`)), ready: func(context.Context) error { return nil }, late: true})
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
		say(w, `{"id":"chatcmpl-`+l.id()+`","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`,
			`{"error":{"message":"x","code":500}}`, "[DONE]")
	})
	_ = r.turn("c", 1, true)
	if legs := r.decode[0].await(2); !strings.Contains(legs[1].body, `"taking":1`) {
		t.Errorf("decode saw %v, want a leg that takes the KV behind the client's", legs)
	}
	r.decode[0].awaitEnd(2)
}
