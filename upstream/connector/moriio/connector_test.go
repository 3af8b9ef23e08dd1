package moriio

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/body"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exchange is what an engine is asked, as the fact sheet of vLLM's source has it (testdata/exchanges/moriio).
type exchange struct {
	Request struct {
		Path    string
		Headers map[string]string
		Body    json.RawMessage
	}
	Response struct{ JSON json.RawMessage }
}

// answer is what the runner reads of a prefill answer.
func (e exchange) answer(t *testing.T) upstream.PrefillAnswer {
	t.Helper()
	var read struct {
		Params json.RawMessage `json:"kv_transfer_params"`
		IDs    json.RawMessage `json:"prompt_token_ids"`
	}
	if err := json.Unmarshal(e.Response.JSON, &read); err != nil {
		t.Fatal(err)
	}
	if string(read.Params) == "null" {
		read.Params = nil
	}
	return upstream.PrefillAnswer{Params: read.Params, PromptIDs: read.IDs, Body: e.Response.JSON}
}

func written(t *testing.T, name string) (e exchange) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "exchanges", "moriio", name))
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const tail = "4f5d0c2b9a8e47d1b3c6f70812345678"

// transfer is an attempt of a request between two engines of a mode.
func transfer(t *testing.T, mode string, api body.API, raw string) upstream.Transfer {
	t.Helper()
	request, err := body.ParseRequest(api, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return upstream.Transfer{
		Request: request, RequestID: tail, PromptIDs: []uint32{5, 6, 7},
		Prefill: &upstream.Instance{Role: upstream.RolePrefill, Announced: upstream.Announcement{
			Address: "host:10.0.1.2,handshake:6301,notify:61005", DPSize: 1, TPSize: 4, Mode: mode,
		}},
		Decode: &upstream.Instance{Role: upstream.RoleDecode, Announced: upstream.Announcement{
			Address: "host:10.0.1.3,handshake:6301,notify:61005", DPSize: 1, TPSize: 8, Mode: mode,
		}},
	}
}

func planned(t *testing.T, x upstream.Transfer) upstream.Plan {
	t.Helper()
	plan, err := Connector{}.Plan(x)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// object decodes a JSON object.
func object(t *testing.T, raw []byte) map[string]json.RawMessage {
	t.Helper()
	o := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return o
}

// plain is JSON with sorted members, and with a transfer id that does not differ from time to time.
func plain(t *testing.T, raw []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(regexp.MustCompile(`tx-[0-9a-f-]{36}`).ReplaceAll(raw, []byte("tx")), &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(sorted)
}

// compareLeg compares a leg with a written one.
func compareLeg(t *testing.T, what string, leg upstream.LegPlan, body []byte, want exchange) {
	t.Helper()
	if leg.RequestID != want.Request.Headers["X-Request-Id"] || leg.API.Path() != want.Request.Path || leg.Rank != "" {
		t.Errorf("%s: got %+v, want %s with the id %s", what, leg, want.Request.Path, want.Request.Headers["X-Request-Id"])
	}
	if got, want := plain(t, body), plain(t, want.Request.Body); got != want {
		t.Errorf("%s: got\n%s, want\n%s", what, got, want)
	}
}

func TestConnector_SpeaksAsWritten(t *testing.T) {
	p := written(t, "03-prefill.json")
	for mode, row := range map[string]struct {
		decode string
		order  upstream.Order
	}{modeRead: {"04-decode-read.json", upstream.PrefillFirst}, modeWrite: {"05-decode-write.json", upstream.Together}, "": {"05-decode-write.json", upstream.Together}} {
		d := written(t, row.decode)
		client := object(t, d.Request.Body)
		delete(client, "kv_transfer_params")
		raw, err := json.Marshal(client)
		if err != nil {
			t.Fatal(err)
		}
		x := transfer(t, mode, body.Chat, string(raw))
		plan := planned(t, x)
		if plan.Order != row.order || (plan.Check == nil) != (row.order == upstream.PrefillFirst) {
			t.Errorf("%s: got %+v", mode, plan)
		}
		compareLeg(t, mode+" prefill", plan.Prefill, x.Request.PrefillBody(body.PrefillEdit{Members: plan.Prefill.Members}).Bytes(), p)
		ours := string(object(t, plan.Prefill.Members[4].Value)["transfer_id"])
		answer := p.answer(t)
		answer.Params = regexp.MustCompile(`"tx-[0-9a-f-]+"`).ReplaceAll(answer.Params, []byte(ours))
		if row.order == upstream.Together {
			if err := plan.Check(answer); err != nil {
				t.Errorf("%s: a prefill of which decode has the KV: %v", mode, err)
			}
			answer = upstream.PrefillAnswer{}
		}
		handover, err := plan.Handover(answer)
		if err != nil || !handover.Bound || handover.Cached != -1 || handover.Head != nil || handover.Whole != nil {
			t.Fatalf("%s: got %+v, %v", mode, handover, err)
		}
		leg := handover.Leg(nil)
		compareLeg(t, mode+" decode", leg, x.Request.DecodeBody(body.DecodeEdit{Members: leg.Members}).Bytes(), d)
		if got := string(object(t, leg.Members[0].Value)["transfer_id"]); got != ours {
			t.Errorf("%s: decode's transfer id %s is not prefill's, %s", mode, got, ours)
		}
		if shown, err := handover.Rewrite.Body(d.Response.JSON); err != nil || strings.Contains(string(shown), "10.0.1") {
			t.Errorf("%s: the client gets %s, %v; want no addresses of engines", mode, shown, err)
		}
	}
}

func TestConnector_TextsHaveTheirIDsAsPrompt(t *testing.T) {
	for _, mode := range []string{modeRead, modeWrite} {
		x := transfer(t, mode, body.Text, `{"prompt":"abc","max_tokens":9}`)
		plan := planned(t, x)
		answer := written(t, "03-prefill.json").answer(t)
		answer.Params = []byte(strings.Replace(string(answer.Params), `"transfer_id"`, `"was"`, 1))
		handover, err := plan.Handover(answer)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range [][]byte{
			x.Request.PrefillBody(body.PrefillEdit{Members: plan.Prefill.Members}).Bytes(),
			x.Request.DecodeBody(body.DecodeEdit{Members: handover.Leg(nil).Members}).Bytes(),
		} {
			leg := object(t, body)
			if string(leg["prompt"]) != "[5,6,7]" || object(t, leg["kv_transfer_params"])["prompt_token_ids"] != nil {
				t.Errorf("%s: got %s, want the ids as prompt and nowhere else", mode, body)
			}
		}
	}
}

func TestConnector_OnlyPrefillEndsByItsLengthAlone(t *testing.T) {
	x := transfer(t, modeWrite, body.Chat,
		`{"messages":[],"stop":["x"],"stop_token_ids":[1],"ignore_eos":false,"min_tokens":3,"max_tokens":7,"max_completion_tokens":9,"return_token_ids":false}`)
	plan := planned(t, x)
	prefill := object(t, x.Request.PrefillBody(body.PrefillEdit{Members: plan.Prefill.Members}).Bytes())
	for name, want := range map[string]string{
		"ignore_eos": "true", "return_token_ids": "true", "max_tokens": "1", "max_completion_tokens": "1", "stop": "", "stop_token_ids": "", "min_tokens": "",
	} {
		if string(prefill[name]) != want {
			t.Errorf("prefill, %s: got %s, want %s", name, prefill[name], want)
		}
	}
	handover, err := plan.Handover(upstream.PrefillAnswer{})
	if err != nil {
		t.Fatal(err)
	}
	decode := object(t, x.Request.DecodeBody(body.DecodeEdit{Members: handover.Leg(nil).Members}).Bytes())
	for name, want := range map[string]string{ // prefill's token is given to nobody, so that none is missing
		"ignore_eos": "false", "return_token_ids": "false", "stop": `["x"]`, "stop_token_ids": "[1]", "min_tokens": "3", "max_tokens": "7", "max_completion_tokens": "9",
	} {
		if string(decode[name]) != want {
			t.Errorf("decode, %s: got %s, want the client's %s", name, decode[name], want)
		}
	}
}

func TestConnector_RanksAreNamedOnBothLegs(t *testing.T) {
	seen := map[string]bool{}
	for _, decodes := range []int{4, 2, 0} {
		for n := range 64 {
			x := transfer(t, modeWrite, body.Chat, `{"messages":[]}`)
			x.RequestID = strings.Repeat(string("0123456789abcdef"[n%16]), 31) + string("0123"[n/16])
			x.Prefill.Announced.DPSize, x.Decode.Announced.DPSize = 4, decodes
			plan := planned(t, x)
			handover, err := plan.Handover(upstream.PrefillAnswer{})
			if err != nil {
				t.Fatal(err)
			}
			leg, rank := handover.Leg(nil), plan.Prefill.Rank
			seen[rank] = true
			want := rank
			if rank >= string(rune('0'+max(decodes, 1))) { // which decode does not have
				want = ""
			}
			params := object(t, leg.Members[0].Value)
			if leg.Rank != want || string(params["remote_dp_rank"]) != rank || string(params["remote_dp_size"]) != "4" {
				t.Errorf("prefill's rank %q: decode's leg has rank %q and %s", rank, leg.Rank, leg.Members[0].Value)
			}
			if again := planned(t, x).Prefill.Rank; again != rank {
				t.Errorf("one request id has the ranks %s and %s", rank, again)
			}
		}
	}
	if len(seen) != 4 || seen[""] {
		t.Errorf("192 attempts went to the ranks %v, want all 4", seen)
	}
	x := transfer(t, modeWrite, body.Chat, `{"messages":[]}`)
	x.Prefill.Announced.DPSize, x.Prefill.Ranked, x.Prefill.Rank = 4, true, 3
	if rank := planned(t, x).Prefill.Rank; rank != "3" {
		t.Errorf("an instance that is rank 3: got %q", rank)
	}
}

func TestConnector_NoHandOverBetween(t *testing.T) {
	for name, row := range map[string]struct {
		change func(p, d *upstream.Instance)
		why    string
	}{
		"a prefill instance that has not registered": {func(p, _ *upstream.Instance) { p.Announced = upstream.Announcement{} }, whyNotRegistered},
		"a decode instance that has not registered":  {func(_, d *upstream.Instance) { d.Announced = upstream.Announcement{} }, whyNotRegistered},
		"an address of another form":                 {func(p, _ *upstream.Instance) { p.Announced.Address = "10.0.1.2:21001" }, whyNotRegistered},
		"an address without a port":                  {func(p, _ *upstream.Instance) { p.Announced.Address = "host:a,handshake:1,notify:" }, whyNotRegistered},
		"two modes":                                  {func(p, _ *upstream.Instance) { p.Announced.Mode = modeRead }, whyTransferMode},
		"a mode and none":                            {func(_, d *upstream.Instance) { d.Announced.Mode = modeRead }, whyTransferMode},
	} {
		x := transfer(t, "", body.Chat, `{"messages":[]}`)
		row.change(x.Prefill, x.Decode)
		if plan := planned(t, x); plan.Order != upstream.DecodeAlone || plan.Why != row.why {
			t.Errorf("%s: got %+v, want no legs for %s", name, plan, row.why)
		}
	}
	x := transfer(t, modeWrite, body.Chat, `{"messages":[]}`)
	x.PromptIDs = nil
	if plan, err := (Connector{}).Plan(x); !errors.Is(err, errNoIDs) {
		t.Errorf("without ids: got %+v, %v", plan, err)
	}
	if traits := (Connector{}).Traits(); !traits.NeedsPrefill || !traits.IDs || traits.Reuses {
		t.Errorf("got %+v", traits)
	}
}

func TestConnector_EachAttemptHasATransferOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		plan := planned(t, transfer(t, modeWrite, body.Chat, `{"messages":[]}`))
		seen[string(object(t, plan.Prefill.Members[4].Value)["transfer_id"])] = true
	}
	if len(seen) != 100 {
		t.Errorf("100 attempts have %d transfer ids", len(seen))
	}
}

func TestConnector_MakesNoTickets(t *testing.T) {
	if parsed, err := (Connector{}).ParseTicket([]byte(`{}`), 16); err == nil {
		t.Errorf("got %+v", parsed)
	}
	if leg, err := (Connector{}).Release(upstream.TicketOffer{}, "m"); err == nil {
		t.Errorf("got %+v", leg)
	}
}
