package lmcache

import (
	"carryover/upstream/exchangetest"
	"context"
	"errors"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
)

// receivers is a connector whose decode instance has this receiver.
func receivers(r Receiver) func(*Connector) {
	return func(c *Connector) { c.Receivers = map[string]Receiver{"10.0.0.2:8200": r} }
}

func TestPlan_WhatDecodeServesAlone(t *testing.T) {
	if got := newBench(nil).Traits(); got.Reuses || !got.IDs {
		t.Errorf("Traits = %+v, want ids and no reuse", got)
	}
	const chat, text = body.Chat, body.Text
	for _, row := range []struct {
		body string
		api  body.API
		ids  int
		why  string
	}{
		{`{"max_tokens":9}`, text, 300, "no_receiver"},
		{`{}`, text, 301, "prompt_too_long"}, // for one step
		{`{}`, chat, 9, "context_unknown"},
		{`{"truncate_prompt_tokens":5}`, text, 9, "truncate_prompt_tokens"}, // a prompt that is cut
		{`{"prompt_logprobs":0}`, chat, 9, "prompt_logprobs"},               // logprobs of the prompt
		{`{"suffix":"x"}`, text, 9, "connector"},                            // an answer in the middle
		{`{"max_tokens":9}`, text, 4096, "connector"},                       // no room
		{`{"max_tokens":0}`, text, 9, "connector"},                          // no budget
		{`{"max_tokens":1}`, text, 9, "connector"},                          // one token
		{`{"max_tokens":3,"min_tokens":4}`, text, 9, "connector"},           // more than the budget at least
		{`{"seed":1}`, text, 256, "prompt_too_short"},                       // less than a chunk, begun at decode
		{`{}`, text, 0, "prompt_too_short"},                                 // no ids
	} {
		b := newBench(nil)
		tr := transfer(t, row.api, row.body, row.ids)
		switch row.why {
		case "prompt_too_long":
			b.MaxPromptTokens = 300
		case "no_receiver":
			b.Receivers = nil
		case "context_unknown":
			tr.ContextLength = 0
		}
		plan, err := b.Plan(t.Context(), tr)
		if err != nil || plan.Alone != row.why || plan.Close != nil || len(b.arrivals) != 0 {
			t.Errorf("%+v: got %+v, %v and %d waits, want decode alone because of %q and no wait", row, plan, err, len(b.arrivals), row.why)
		}
	}
}

func TestPlan_Budget(t *testing.T) {
	for _, row := range []struct {
		api         body.API
		body        string
		most, least int
	}{
		{body.Text, `{"max_tokens":40,"max_completion_tokens":7,"min_tokens":3}`, 40, 3},
		{body.Text, `{"max_tokens":9999}`, 4096 - 100, 0},
		{body.Chat, `{}`, 4096 - 100, 0},
		{body.Chat, `{"max_tokens":40,"max_completion_tokens":7,"min_tokens":7}`, 7, 7},
	} {
		tr := transfer(t, row.api, row.body, 100)
		if got, why := budgetOf(&tr); why != "" || got != (budget{row.most, row.least}) {
			t.Errorf("%v %s: got %+v, %q, want %d and %d", row.api, row.body, got, why, row.most, row.least)
		}
	}
	tr := transfer(t, body.Chat, `{"max_tokens":40}`, 100)
	tr.ContextLength = 0
	if got, why := budgetOf(&tr); why != "" || got.most != 40 {
		t.Errorf("in a context that is not known: got %+v, %q, want 40", got, why)
	}
}

func TestPlan_WaitsBeforePrefillIsAsked(t *testing.T) {
	two := Receiver{Host: "d", InitPorts: []int{1, 2}, AllocPorts: []int{3, 4}}
	for name, row := range map[string]struct {
		change func(*Connector)
		want   int
	}{
		"one for each port": {receivers(two), 2},
		"as configured": {func(c *Connector) {
			receivers(two)(c)
			c.Notifications = 1
		}, 1},
	} {
		b := newBench(row.change)
		tr := transfer(t, body.Text, `{}`, 9)
		first, second := b.plan(t, tr), b.plan(t, tr)
		if len(b.arrivals) != 2 || b.arrivals[0].count != row.want || b.arrivals[0].id != "id-1" || b.arrivals[1].id != "id-3" {
			t.Errorf("%s: got waits %+v, want two for %d, each of its own id", name, b.arrivals, row.want)
		}
		params := string(first.Prefill.Members[len(first.Prefill.Members)-1].Value)
		if !strings.Contains(params, `"req_id":"id-1"`) {
			t.Errorf("%s: got %s, want the id that is waited for", name, params)
		}
		first.Close()
		second.Close()
		for _, a := range b.arrivals {
			if a.closed != 1 {
				t.Errorf("%s: a wait was closed %d times, want once", name, a.closed)
			}
		}
	}
}

func TestReceiver_OfADecodeInstance(t *testing.T) {
	named := map[string]Receiver{
		"10.0.0.2:8200": {Host: "kv.d", InitPorts: []int{1, 2}, AllocPorts: []int{3, 4}},
		"dec:443":       {Host: "fd00::1", InitPorts: []int{1}, AllocPorts: []int{3}, QueryPorts: []int{5}},
	}
	for _, row := range []struct {
		url  string
		want string
	}{
		{"http://10.0.0.2:8200", `{"disagg_spec":{"req_id":"id-1","receiver_host":"kv.d","receiver_init_port":[1,2],"receiver_alloc_port":[3,4]},"lmcache.tag.attempt":"id-1"}`},
		{"https://dec", `{"disagg_spec":{"req_id":"id-1","receiver_host":"fd00::1","receiver_init_port":[1],"receiver_alloc_port":[3],"receiver_query_port":[5]},"lmcache.tag.attempt":"id-1"}`},
	} {
		c := newBench(func(c *Connector) { c.Receivers = named })
		tr := transfer(t, body.Text, `{"max_tokens":9}`, 3)
		tr.Decode = &upstream.Instance{BaseURL: row.url}
		plan := c.plan(t, tr)
		exchangetest.Same(t, plan.Prefill.Members[len(plan.Prefill.Members)-1].Value, []byte(row.want))
	}
}

func TestReady_KVThatIsNotAnnounced(t *testing.T) {
	refused, left := errors.New("refused"), errors.New("the client has left")
	waits := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for name, row := range map[string]struct {
		ready func(context.Context) error
		cause error // with which the wait ends, nil for none
		want  error // nil for none
	}{
		"announced":          {func(context.Context) error { return nil }, nil, nil},
		"refused":            {func(context.Context) error { return refused }, nil, refused},
		"late":               {waits, upstream.ErrNotReady, upstream.ErrNotReady},
		"the turn has ended": {waits, left, left},
	} {
		b := newBench(nil)
		b.ready = row.ready
		ctx, cancel := context.WithCancelCause(context.Background())
		if row.cause != nil {
			cancel(row.cause)
		}
		err := b.plan(t, transfer(t, body.Text, `{}`, 9)).Ready(ctx)
		if !errors.Is(err, row.want) || (row.want == nil) != (err == nil) {
			t.Errorf("%s: got %v, want %v", name, err, row.want)
		}
		if name == "late" && (!strings.Contains(err.Error(), "max_num_batched_tokens") || !strings.Contains(err.Error(), "pd_proxy_host")) {
			t.Errorf("got %v, want an error that says what to look at", err)
		}
		cancel(nil)
	}
}
