package mooncake

import (
	"carryover/upstream/exchangetest"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recorded(t *testing.T, name string) exchangetest.Exchange {
	t.Helper()
	return exchangetest.Read(t, "mooncake", name)
}

// object decodes a JSON object.
func object(t *testing.T, raw []byte) (o map[string]json.RawMessage) {
	t.Helper()
	must(t, json.Unmarshal(raw, &o))
	return o
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// bootstrap is a connector whose bootstrap servers answer so.
func bootstrap(answer string) *Connector {
	return &Connector{BootstrapPort: 8998, Fetch: func(context.Context, string, int64) (int, []byte, error) {
		return http.StatusOK, []byte(answer), nil
	}}
}

const oneRank = `{"0":{"engine_id":"e","worker_addr":{"0":{"0":"tcp://h:1"}}}}`

const twoRanks = `{"1":{"engine_id":"e_dp1","worker_addr":{"0":{"0":"tcp://h:1"}}},"0":{"engine_id":"e_dp0","worker_addr":{"0":{"0":"tcp://h:2"}}}}`

// planned is the plan of a request where one rank runs, and the bodies of its legs.
func planned(t *testing.T, api body.API, raw string, change func(*upstream.Transfer)) (plan upstream.Plan, prefill, decode map[string]json.RawMessage) {
	t.Helper()
	return plannedBy(t, bootstrap(oneRank), api, raw, change)
}

func plannedBy(t *testing.T, c *Connector, api body.API, raw string, change func(*upstream.Transfer)) (plan upstream.Plan, prefill, decode map[string]json.RawMessage) {
	t.Helper()
	request, err := body.ParseRequest(api, []byte(raw))
	must(t, err)
	transfer := upstream.Transfer{
		Request: request, RequestID: "r", PromptIDs: []uint32{5, 6, 7},
		Prefill: &upstream.Instance{Role: upstream.RolePrefill, Name: "p", BaseURL: "http://10.0.0.1:8100"},
		Decode:  &upstream.Instance{Role: upstream.RoleDecode, Name: "d", BaseURL: "http://10.0.0.2:8200"},
	}
	if change != nil {
		change(&transfer)
	}
	plan, err = c.Plan(t.Context(), transfer)
	must(t, err)
	handover := plan.Together
	if handover == nil || handover.Bound || handover.Head != nil || handover.Rewrite != nil || handover.Left {
		t.Fatalf("got %+v with the hand-over %+v, want both legs together and any decode instance", plan, handover)
	}
	leg := handover.Leg(nil)
	if leg.API != api || plan.Prefill.API != api || leg.Rank != "" {
		t.Errorf("got legs %+v and %+v, want the client's endpoint", plan.Prefill, leg)
	}
	if rescue := asked(t, request.RescueBody, handover.Rescue()); string(rescue["prompt"]) != "[5,6,7]" || string(rescue["max_tokens"]) != "1" {
		t.Errorf("got the rescue %v, want a text completion of the ids", rescue)
	}
	prefill = object(t, request.PrefillBody(body.LegEdit{Members: plan.Prefill.Members}).Bytes())
	return plan, prefill, object(t, request.DecodeBody(body.LegEdit{Members: leg.Members}).Bytes())
}

// asked is the body of a rescue with these members.
func asked(t *testing.T, of func(body.LegEdit) (body.API, rawjson.Pieces), members []body.Member) map[string]json.RawMessage {
	t.Helper()
	_, pieces := of(body.LegEdit{Members: members})
	return object(t, pieces.Bytes())
}

// The legs of the recorded pair, from the request that its client would have sent.
func TestConnector_SpeaksAsRecorded(t *testing.T) {
	query, p, d := recorded(t, "01-query.json"), recorded(t, "02-prefill-chat.json"), recorded(t, "03-decode-chat.json")
	client := object(t, d.Request.Body)
	delete(client, "kv_transfer_params")
	var asked string
	c := &Connector{BootstrapPort: 8998, Fetch: func(_ context.Context, url string, _ int64) (int, []byte, error) {
		asked = url
		return query.Response.Status, query.Response.JSON, nil
	}}
	plan, prefill, decode := plannedBy(t, c, body.Chat, string(raw(t, client)), func(transfer *upstream.Transfer) {
		transfer.Prefill.BaseURL, transfer.Prefill.KVPort = "http://127.0.0.1:8100", 5798
	})
	if want := "http://127.0.0.1:5798" + query.Request.Path; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
	compareLeg(t, prefill, object(t, p.Request.Body))
	compareLeg(t, decode, object(t, d.Request.Body))
	if transfer := object(t, prefill["kv_transfer_params"])["transfer_id"]; string(transfer) != string(object(t, decode["kv_transfer_params"])["transfer_id"]) {
		t.Errorf("prefill's transfer id %s is not decode's", transfer)
	}
	answer := func(e exchangetest.Exchange) upstream.PrefillAnswer {
		return upstream.PrefillAnswer{Body: e.Response.JSON}
	}
	if traits := c.Traits(); traits.Reuses || !traits.IDs {
		t.Errorf("got %+v, want ids and no reuse", traits)
	}
	if _, err := plan.Handover(answer(p)); err != nil {
		t.Errorf("a prefill of which decode has the KV: %v", err)
	}
	if _, err := plan.Handover(answer(recorded(t, "05-prefill-stops-on-first-token.json"))); !errors.Is(err, errNotCapped) {
		t.Errorf("a prefill that has thrown its KV away: got %v", err)
	}
}

// raw is a JSON object.
func raw(t *testing.T, o map[string]json.RawMessage) []byte {
	t.Helper()
	raw, err := json.Marshal(o)
	must(t, err)
	return raw
}

// compareLeg compares a leg with a recorded one, but for ids, which the recorded engines were left to render.
func compareLeg(t *testing.T, got, want map[string]json.RawMessage) {
	t.Helper()
	exchangetest.Same(t, raw(t, got), raw(t, want), "kv_transfer_params")
	exchangetest.Same(t, got["kv_transfer_params"], want["kv_transfer_params"], "transfer_id", "prompt_token_ids")
	if params := object(t, got["kv_transfer_params"]); string(params["prompt_token_ids"]) != "[5,6,7]" || params["transfer_id"] == nil {
		t.Errorf("got params %s, want the ids and a transfer", got["kv_transfer_params"])
	}
}

func TestConnector_PrefillEndsByItsLengthAlone(t *testing.T) {
	_, prefill, decode := planned(t, body.Chat,
		`{"messages":[],"stop":["x"],"stop_token_ids":[1],"ignore_eos":false,"min_tokens":3,"return_token_ids":false,"stream":true}`, nil)
	for name, want := range map[string]string{"ignore_eos": "true", "return_token_ids": "true", "max_tokens": "1", "stop": "", "stop_token_ids": "", "min_tokens": ""} {
		if string(prefill[name]) != want {
			t.Errorf("prefill, %s: got %s, want %s", name, prefill[name], want)
		}
	}
	for name, want := range map[string]string{"ignore_eos": "false", "return_token_ids": "false", "stop": `["x"]`, "stop_token_ids": "[1]", "min_tokens": "3", "stream": "true"} {
		if string(decode[name]) != want {
			t.Errorf("decode, %s: got %s, want the client's %s", name, decode[name], want)
		}
	}
}

func TestConnector_TextsHaveTheirIDsAsPrompt(t *testing.T) {
	_, prefill, decode := planned(t, body.Text, `{"prompt":"abc"}`, nil)
	for _, leg := range []map[string]json.RawMessage{prefill, decode} {
		if string(leg["prompt"]) != "[5,6,7]" || object(t, leg["kv_transfer_params"])["prompt_token_ids"] != nil {
			t.Errorf("got %v, want the ids as prompt and nowhere else", leg)
		}
	}
}

// A second decode leg of one transfer fails, so that no two attempts may have one, even of one request id.
func TestConnector_EachAttemptHasATransferOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		_, prefill, _ := planned(t, body.Chat, `{"messages":[]}`, nil)
		seen[string(object(t, prefill["kv_transfer_params"])["transfer_id"])] = true
	}
	if len(seen) != 100 {
		t.Errorf("100 attempts have %d transfer ids", len(seen))
	}
}

func TestConnector_DecodeIsToldWherePrefillIs(t *testing.T) {
	for _, row := range []struct {
		url, host string
		port      int
		want      string
	}{
		{"http://p-0:8100", "auto", 0, "http://p-0:8998"},
		{"http://p-0:8100", "pin", 9000, "http://p-0:9000"},
		{"https://p-0", "", 0, "http://p-0:8998"},
		{"http://p-0:8100", "10.1.2.3", 0, "http://10.1.2.3:8998"},
		{"http://[fd00::1]:8100", "auto", 7, "http://[fd00::1]:7"},
		{"http://p-0:8100", "fd00::2", 0, "http://[fd00::2]:8998"},
	} {
		_, _, decode := planned(t, body.Chat, `{"messages":[]}`, func(transfer *upstream.Transfer) {
			transfer.Prefill.BaseURL, transfer.Prefill.KVHost, transfer.Prefill.KVPort = row.url, row.host, row.port
		})
		if got := string(object(t, decode["kv_transfer_params"])["remote_bootstrap_addr"]); got != fmt.Sprintf("%q", row.want) {
			t.Errorf("%+v: got %s", row, got)
		}
	}
}

// Ranks behind one address take turns, and each leg goes to the engine that decode is told of.
func TestConnector_RanksTakeTurns(t *testing.T) {
	c := bootstrap(twoRanks)
	seen := map[string]int{}
	for range 6 {
		plan, _, decode := plannedBy(t, c, body.Chat, `{"messages":[]}`, nil)
		seen[plan.Prefill.Rank+string(object(t, decode["kv_transfer_params"])["remote_engine_id"])]++
	}
	if seen[`0"e_dp0"`] != 3 || seen[`1"e_dp1"`] != 3 {
		t.Errorf("got %v, want each rank thrice, with its own engine id", seen)
	}
	plan, _, decode := plannedBy(t, c, body.Chat, `{"messages":[]}`, func(transfer *upstream.Transfer) {
		transfer.Prefill.Ranked, transfer.Prefill.Rank = true, 1
	})
	if id := object(t, decode["kv_transfer_params"])["remote_engine_id"]; plan.Prefill.Rank != "" || string(id) != `"e_dp1"` {
		t.Errorf("an instance that is rank 1: got rank %q and engine %s", plan.Prefill.Rank, id)
	}
}

func TestConnector_ChecksWhatPrefillComputed(t *testing.T) {
	plan, _, _ := planned(t, body.Chat, `{"messages":[]}`, nil)
	const capped = `{"choices":[{"finish_reason":"length"}]}`
	for _, row := range []struct {
		ids, body string
		want      error
	}{
		{`[5, 6,7]`, capped, nil},
		{``, capped, nil},
		{`[5,6,8]`, capped, errOtherIDs},
		{`[5,6]`, capped, errOtherIDs},
		{`["5"]`, capped, errOtherIDs},
		{`[5,6,7]`, `{"choices":[{"finish_reason":"stop"}]}`, errNotCapped},
		{`[5,6,7]`, `{"choices":[{"finish_reason":null}]}`, errNotCapped},
		{`[5,6,7]`, `{"choices":[]}`, errNotCapped},
		{`[5,6,7]`, `{}`, errNotCapped},
	} {
		answer := upstream.PrefillAnswer{Body: []byte(row.body)}
		if row.ids != "" {
			answer.PromptIDs = []byte(row.ids)
		}
		if _, err := plan.Handover(answer); !errors.Is(err, row.want) {
			t.Errorf("%s with ids %q: got %v, want %v", row.body, row.ids, err, row.want)
		}
	}
}

func TestPlan_SaysWhyAnEngineIsNotKnown(t *testing.T) {
	if _, err := bootstrap(twoRanks).Plan(t.Context(), upstream.Transfer{}); !errors.Is(err, errNoIDs) {
		t.Errorf("no ids: got %v", err)
	}
	broken := errors.New("connection refused")
	for name, row := range map[string]struct {
		status int
		body   string
		err    error
		want   string
	}{
		"refused":  {err: broken, want: "refused"},
		"starting": {status: 503, body: "{}", want: "status 503"},
		"garbage":  {status: 200, body: "<html>", want: "bootstrap server"},
		"nobody":   {status: 200, body: "{}", want: "no engine"},
		"rank":     {status: 200, body: twoRanks, want: "no engine of data-parallel rank 7"},
	} {
		c := &Connector{Fetch: func(context.Context, string, int64) (int, []byte, error) {
			return row.status, []byte(row.body), row.err
		}}
		_, err := c.Plan(t.Context(), upstream.Transfer{
			PromptIDs: []uint32{1}, Prefill: &upstream.Instance{Role: upstream.RolePrefill, Name: "p", BaseURL: "http://p", Ranked: true, Rank: 7},
		})
		var leg *upstream.LegError
		if !errors.As(err, &leg) || leg.Sent || leg.Kind != upstream.Dial || leg.Role != upstream.RolePrefill || leg.Instance != "p" || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want a leg that was not sent", name, err)
		}
	}
}
