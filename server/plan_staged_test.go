package server_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/body"
)

// staged is a connector whose prefill gives the first of the answer, and whose decode is asked when the KV has arrived, as
// LMCache's is: the client's first event comes from prefill, and decode's are rewritten.
type staged struct {
	upstream.Connector
	ready func(ctx context.Context) error
	head  []byte
	left  bool // the client's leg takes nothing of the KV
}

func (c staged) Plan(ctx context.Context, t upstream.Transfer) (upstream.Plan, error) {
	plan, err := c.Connector.Plan(ctx, t)
	if err != nil {
		return plan, err
	}
	plan.Ready = c.ready
	handover := plan.Handover
	plan.Handover = func(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
		h, err := handover(answer)
		if err == nil {
			h.Rewrite, h.Head, h.Left = shouting{}, c.head, c.left
			leg := h.Leg
			h.Leg = func(ids []byte) upstream.LegPlan {
				plan := leg(ids)
				plan.Members = append(plan.Members, body.Member{Name: "max_tokens", Value: []byte("499")})
				return plan
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

func stagedRig(t *testing.T, c staged, cfg func(*server.Config)) *rig {
	t.Helper()
	return newRig(t, setup{cfg: cfg, deps: c.in})
}

func (c staged) in(d *server.Deps) {
	c.Connector = d.Connector
	d.Connector = c
}

// head is what comes before decode's events.
var head = []byte(frames(`{"head":1}`))

// arrived is KV that has arrived.
func arrived(context.Context) error { return nil }

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

func TestStaged_TheHeadComesBeforeDecodesEvents(t *testing.T) {
	ready := make(chan struct{})
	r := stagedRig(t, staged{head: head, ready: gated(ready)}, nil)
	done := make(chan reply, 1)
	go func() { done <- r.turn("c", 1, true) }()
	r.prefill[0].awaitEnd(1)
	r.decode[0].wantLegs(0)
	close(ready)
	p := <-done
	rest, found := strings.CutPrefix(p.body, string(head))
	if !found || p.err != nil || !strings.Contains(rest, "WORLD") || strings.Contains(rest, "role") || !strings.HasSuffix(rest, "data: [DONE]\n\n") ||
		!strings.Contains(rest, `"finish_reason":"stop"`) || strings.Contains(rest, "kv_transfer_params") {
		t.Errorf("got %q (%v), want the head and decode's events as the connector has them", p.body, p.err)
	}
	if got := p.header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("got content type %q", got)
	}
	r.wantStored(1, "yes")
}

// KV that does not arrive is a failure of prefill, which decode makes good by itself unless the operator wants the error.
func TestStaged_KVThatDoesNotArrive(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	for name, row := range map[string]struct {
		ready  func(context.Context) error
		status int
		code   string
	}{
		"in time":             {gated(never), http.StatusGatewayTimeout, "prefill_timeout"},
		"the connector fails": {func(context.Context) error { return errors.New("socket closed") }, http.StatusBadGateway, "prefill_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, policy := range []turn.PrefillFailure{turn.PrefillError, turn.PrefillRetryOther} {
				r := stagedRig(t, staged{ready: row.ready, head: head}, func(c *server.Config) { c.HandoverBudget, c.PrefillFailure = 50*time.Millisecond, policy })
				for _, stream := range []bool{true, false} {
					if p := r.turn("c", 1, stream); policy == turn.PrefillError {
						r.wantError(p, row.status, row.code)
					} else if r.wantOK(p, "miss;"); strings.Contains(p.body, "head") {
						t.Errorf("got %q, want decode's own answer", p.body)
					}
				}
				for _, l := range r.decode[0].seen() {
					if l.params() != nil {
						t.Errorf("decode is asked for %s before the KV has arrived", l.body)
					}
				}
			}
		})
	}
}

// A client that leaves while the KV is on its way strands nothing: decode does not look for it before it has arrived, and what the plan has reserved is
// given back when nothing waits with it any more.
func TestStaged_AClientThatLeavesWhileTheKVIsOnItsWay(t *testing.T) {
	const budget = time.Hour
	l, ready, waited, c := newLeaver(t), make(chan struct{}), make(chan struct{}, 2), newReserving()
	r := newRig(t, setup{cfg: func(c *server.Config) { c.HandoverBudget = budget }, deps: func(d *server.Deps) {
		c.Connector = staged{Connector: d.Connector, ready: func(ctx context.Context) error {
			if ends, ok := ctx.Deadline(); !ok || time.Until(ends) < budget/2 {
				t.Errorf("it is waited for until %v, want as long as the hand-over budget lasts", ends)
			}
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
	<-waited // once more, without the client
	if asked, closed := len(r.decode[0].seen()), c.closed.Load(); asked != 0 || closed != 0 {
		t.Errorf("before the KV had arrived decode was asked %d times, and %d plans were closed", asked, closed)
	}
	close(ready)
	d := r.decode[0].await(1)[0]
	if !strings.Contains(d.body, `"max_tokens":1,`) || strings.Contains(d.body, `"max_tokens":499`) {
		t.Errorf("decode is asked for %s, want one token", d.body)
	}
	r.decode[0].awaitEnd(1)
	c.wantClosed(t)
}

// With a head, what decode tells of the prompt's ids is compared as without.
func TestStaged_AHeadLosesNoTicket(t *testing.T) {
	r := stagedRig(t, staged{ready: arrived, head: head}, byTokens)
	r.inIDs(nil)
	r.sendIDs("c", true, count(100, 200)...)
	r.wantStored(1, "yes")
}

// What a plan has reserved is given back on every exit.
func TestStaged_PlansAreClosed(t *testing.T) {
	for name, row := range map[string]struct {
		ready func(context.Context) error
		fails behaviour
	}{
		"served":          {arrived, prefills},
		"no KV":           {func(context.Context) error { return upstream.ErrNotReady }, prefills},
		"prefill fails":   {nil, status(400, "x")},
		"prefill is gone": {nil, hangUp},
	} {
		t.Run(name, func(t *testing.T) {
			c := newReserving()
			r := newRig(t, setup{cfg: func(c *server.Config) { c.HandoverBudget = 50 * time.Millisecond }, deps: func(d *server.Deps) {
				c.Connector = staged{Connector: d.Connector, ready: row.ready}
				d.Connector = c
			}})
			r.prefill[0].always(row.fails)
			_ = r.turn("c", 1, true)
			c.wantClosed(t)
		})
	}
}

// What the client's leg leaves is rescued, beside it. A whole answer is rewritten, and has no head.
func TestStaged_DecodeTakesWhatTheClientsLegLeaves(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := stagedRig(t, staged{ready: arrived, left: true, head: head}, nil)
		p := r.turn("c", 1, stream)
		r.wantOK(p, "miss;reason=first_turn")
		legs := r.decode[0].await(2)
		if slices.IndexFunc(legs, leg.rescues) < 0 || !strings.Contains(p.body, "WORLD") || strings.Contains(p.body, "head") != stream {
			t.Errorf("decode saw %v, want a leg that takes the KV; the client %q", legs, p.body)
		}
		r.decode[0].awaitEnd(2)
	})
}

// Decode's first event says nothing of the KV. An engine that fails behind it may have left the KV unread.
func TestStaged_DecodeThatFailsBehindItsFirstEventTakesTheKV(t *testing.T) {
	r := stagedRig(t, staged{head: head, ready: arrived}, nil)
	r.decode[0].next(kvFails)
	_ = r.turn("c", 1, true)
	r.until(func() bool { return slices.ContainsFunc(r.decode[0].seen(), leg.rescues) })
}
