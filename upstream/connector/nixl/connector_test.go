package nixl

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/exchangetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exchange reads the params of what vLLM 0.32 was asked and what it answered.
func exchange(t *testing.T, name string) (asked, answered json.RawMessage) {
	t.Helper()
	e := exchangetest.Read(t, "vllm-0.32", name)
	params := func(raw []byte) (p struct {
		Params json.RawMessage `json:"kv_transfer_params"`
	}) {
		must(t, json.Unmarshal(raw, &p))
		return p
	}
	return params(e.Request.Body).Params, params(e.Response.JSON).Params
}

func promptIDs(t *testing.T, params []byte) []byte {
	t.Helper()
	o, err := rawjson.ParseObject(params)
	must(t, err)
	return o.Get("prompt_token_ids")
}

// paramsOf is the kv_transfer_params of a leg, which has nothing else of the connector.
func paramsOf(t *testing.T, leg upstream.LegPlan) []byte {
	t.Helper()
	if len(leg.Members) != 1 || leg.Members[0].Name != "kv_transfer_params" || leg.API != body.Chat {
		t.Fatalf("got %+v, want a chat leg with kv_transfer_params and the turn's own id", leg)
	}
	return leg.Members[0].Value
}

func TestConnector_SpeaksAsRecorded(t *testing.T) {
	prefill := &upstream.Instance{Name: "p", BaseURL: "http://10.0.0.1:8100", KVHost: "auto"}
	decode := &upstream.Instance{Name: "d", BaseURL: "http://10.0.0.2:8200", KVHost: "auto"}
	var connector Connector

	firstTurn, prefillAnswer := exchange(t, "01-prefill-turn1.json")
	template, err := prefillParams(upstream.TicketOffer{})
	must(t, err)
	exchangetest.Same(t, template, firstTurn)

	decodeAsked, decodeAnswer := exchange(t, "02-decode-turn1.json")
	request, err := body.ParseRequest(body.Chat, []byte(`{"messages":[]}`))
	must(t, err)
	plan, err := connector.Plan(t.Context(), upstream.Transfer{Request: request, Prefill: prefill, Decode: decode})
	if err != nil || plan.Alone != "" || plan.Together != nil {
		t.Fatalf("Plan = %+v, %v, want prefill first", plan, err)
	}
	exchangetest.Same(t, paramsOf(t, plan.Prefill), firstTurn)
	handed, err := plan.Handover(upstream.PrefillAnswer{Params: prefillAnswer})
	if err != nil || handed.Cached != 0 || handed.Bound {
		t.Fatalf("Handover = %+v, %v, want one of nothing cached, for any decode instance", handed, err)
	}
	exchangetest.Same(t, paramsOf(t, handed.Leg(promptIDs(t, decodeAsked))), decodeAsked)
	if rescue := handed.Rescue(); len(rescue) != 1 || rescue[0].Name != "kv_transfer_params" {
		t.Errorf("Rescue = %v, want kv_transfer_params", rescue)
	} else {
		exchangetest.Same(t, rescue[0].Value, decodeAsked, "prompt_token_ids")
	}
	if none, err := plan.Handover(upstream.PrefillAnswer{}); none != nil || err != nil {
		t.Errorf("Handover of no params = %+v, %v, want none", none, err)
	}
	if _, err := plan.Handover(upstream.PrefillAnswer{Params: decodeAnswer}); err == nil {
		t.Error("decode's answer is accepted as a hand-over")
	}

	parsed, err := connector.ParseTicket(decodeAnswer, 32)
	if err != nil || parsed.Tokens != 109 || parsed.Groups != 1 || !parsed.Expires || parsed.EngineID == "" || parsed.OutputIDs != nil {
		t.Errorf("ParseTicket = %+v, %v, want 109 tokens of one group that expire", parsed, err)
	}
	for _, size := range []int{31, 16, 64} { // 4 blocks of 32 hold 109 tokens
		if parsed, err := connector.ParseTicket(decodeAnswer, size); (size == 31) != (err == nil) || !errors.Is(err, upstream.ErrMisplaced) && err != nil || parsed.RequestID == "" {
			t.Errorf("ParseTicket with blocks of %d = %+v, %v", size, parsed, err)
		}
	}
	secondTurn, err := prefillParams(upstream.TicketOffer{Ticket: decodeAnswer, Holder: decode, Tokens: 109, BlockSize: 32})
	must(t, err)
	exchangetest.Same(t, secondTurn, decodeAnswer)

	asked, answered := exchange(t, "04-prefill-turn2-partial-reuse.json")
	partial, err := prefillParams(upstream.TicketOffer{
		Ticket: decodeAnswer, Holder: decode, Tokens: 96, BlockSize: 32, PromptIDs: promptIDs(t, asked),
	})
	must(t, err)
	exchangetest.Same(t, partial, asked)
	release, err := connector.Release(upstream.TicketOffer{Ticket: decodeAnswer, Holder: decode, Release: true}, "m")
	if raw := release.Body; err != nil || release.API != body.Text || !bytes.Contains(raw, []byte(`"remote_num_tokens":0`)) && !bytes.Contains(raw, []byte(`"remote_num_tokens": 0`)) {
		t.Errorf("release = %s, %v, want no token offered", raw, err)
	}
	if handed, err := plan.Handover(upstream.PrefillAnswer{Params: answered}); err != nil || handed.Cached != 96 {
		t.Errorf("Handover = %+v, %v, want 96 tokens cached", handed, err)
	}
}

func TestHost_FollowsThePolicy(t *testing.T) {
	for _, row := range []struct{ policy, engine, instance, want string }{
		{"auto", "10.0.0.7", "decode-0", "10.0.0.7"},
		{"auto", "127.0.0.1", "decode-0", "127.0.0.1"},
		{"", "10.0.0.7", "decode-0", "10.0.0.7"},
		{"auto", "", "decode-0", "decode-0"},
		{"auto", "localhost", "decode-0", "decode-0"},
		{"auto", "LocalHost", "decode-0", "decode-0"},
		{"auto", "0.0.0.0", "decode-0", "decode-0"},
		{"auto", "::", "[fd00::2]", "fd00::2"},
		{"auto", "fd00::1", "[fd00::2]", "fd00::1"},
		{"pin", "10.0.0.7", "decode-0", "decode-0"},
		{"pin", "10.0.0.7", "[::1]", "::1"},
		{"kv.internal", "10.0.0.7", "decode-0", "kv.internal"},
		{"[fd00::9]", "10.0.0.7", "decode-0", "fd00::9"},
	} {
		owner := &upstream.Instance{BaseURL: "http://" + row.instance, KVHost: row.policy}
		if got := host(&kvParams{host: row.engine}, owner); got != row.want {
			t.Errorf("host(%q, %q, %q): got %q, want %q", row.policy, row.engine, row.instance, got, row.want)
		}
	}
}

// Params of vLLM 0.33 say how often their engine has registered its KV memory. The reader needs that number, whatever else is changed.
func TestParams_GenerationIsReadAndNeverDropped(t *testing.T) {
	const generation = `"remote_registration_generation":3`
	held := with(t, ticket, "remote_registration_generation", "3")
	instance := &upstream.Instance{BaseURL: "http://h:1", KVHost: "another"}
	var connector Connector
	parsed, err := connector.ParseTicket([]byte(held), 0)
	if err != nil || parsed.Generation != 3 || !strings.Contains(string(parsed.Params), generation) {
		t.Fatalf("ParseTicket = %+v, %v, want generation 3", parsed, err)
	}
	if old, err := connector.ParseTicket([]byte(ticket), 0); err != nil || old.Generation != 0 {
		t.Errorf("ParseTicket = %+v, %v, want no generation before 0.33", old, err)
	}
	for name, offer := range map[string]upstream.TicketOffer{
		"whole":    {Tokens: 109},
		"cut":      {Tokens: 96, BlockSize: 32},
		"with ids": {Tokens: 109, PromptIDs: []byte("[1,2]")},
		"release":  {Release: true},
	} {
		for read, reading := range map[string]any{"read": parsed.Reading, "unread": nil} {
			offer.Ticket, offer.Reading, offer.Holder = parsed.Params, reading, instance
			if params, err := prefillParams(offer); err != nil || !strings.Contains(string(params), generation) {
				t.Errorf("%s, %s: %s, %v, want the generation in it", name, read, params, err)
			}
		}
	}
	handed, err := parseHandover([]byte(with(t, handover, "remote_registration_generation", "3")))
	if err != nil || !strings.Contains(string(handed.forward(edit{Host: "another", PromptIDs: []byte("[1]")})), generation) {
		t.Errorf("hand-over: %v, want the generation in it", err)
	}
	for _, value := range []string{`"3"`, "null", "-1", "1.5", "true", "99999999999"} {
		if _, err := connector.ParseTicket([]byte(with(t, ticket, "remote_registration_generation", value)), 0); err == nil || !strings.Contains(err.Error(), "remote_registration_generation") {
			t.Errorf("generation %s: error %v, want one: the engine compares numbers", value, err)
		}
	}
}
