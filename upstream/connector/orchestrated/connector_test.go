package orchestrated

import (
	"bytes"
	"carryover/upstream/exchangetest"
	"encoding/json"
	"strings"
	"testing"

	"carryover/sse/rawjson/rawjsontest"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/connector"
)

func written(t *testing.T, name string) exchangetest.Exchange {
	t.Helper()
	return exchangetest.Read(t, "orchestrated", name)
}

const prefillURL = "http://10.0.0.1:8100"

// planned is the plan of the written client's request, with prefill at an instance.
func planned(t *testing.T, c Connector, api body.API, prefill upstream.Instance) (*body.Request, upstream.Plan) {
	t.Helper()
	request, err := body.ParseRequest(api,
		[]byte(`{"model":"tiny","messages":[{"role":"user","content":"Which node holds the blocks?"}],"temperature":0,"max_tokens":8,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := c.Plan(t.Context(), upstream.Transfer{Request: request, Prefill: &prefill, Decode: &upstream.Instance{BaseURL: "http://d"}})
	if err != nil || plan.Alone != "" || plan.Together != nil || plan.Prefill.API != api {
		t.Fatalf("got %+v, %v, want prefill first at the client's endpoint", plan, err)
	}
	return request, plan
}

func TestConnector_LegsAreThoseOfTheContract(t *testing.T) {
	if traits := (Connector{}).Traits(); traits.Reuses || traits.IDs {
		t.Errorf("got %+v, want none", traits)
	}
	prefill := written(t, "01-prefill.json")
	var answered struct {
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(prefill.Response.JSON, &answered); err != nil {
		t.Fatal(err)
	}
	for form, name := range map[bool]string{false: "02-decode.json", true: "03-decode-response.json"} {
		request, plan := planned(t, Connector{Response: form}, body.Chat, upstream.Instance{BaseURL: prefillURL})
		exchangetest.Same(t, request.PrefillBody(body.LegEdit{Members: plan.Prefill.Members}).Bytes(), prefill.Request.Body)
		handover, err := plan.Handover(upstream.PrefillAnswer{Params: answered.Params, Body: prefill.Response.JSON})
		if err != nil || handover.Bound || handover.Cached != -1 {
			t.Fatalf("%s: got %+v, %v, want a hand-over to any decode instance", name, handover, err)
		}
		leg := handover.Leg(nil)
		if leg.API != body.Chat || leg.Rank != "" {
			t.Errorf("%s: got %+v, want the client's endpoint and the attempt's id", name, leg)
		}
		exchangetest.Same(t, request.DecodeBody(body.LegEdit{Members: leg.Members}).Bytes(), written(t, name).Request.Body)
	}
}

func TestConnector_NoParamsAreNoHandover(t *testing.T) {
	_, plan := planned(t, Connector{}, body.Chat, upstream.Instance{BaseURL: prefillURL})
	if handover, err := plan.Handover(upstream.PrefillAnswer{Body: []byte(`{}`)}); handover != nil || err != nil {
		t.Errorf("got %+v, %v, want decode to serve alone", handover, err)
	}
	for _, raw := range []string{`[]`, `"x"`, `7`, `true`, `{"a":1,"a":2}`, `{"a":"` + strings.Repeat("x", connector.MaxParams) + `"}`} {
		if handover, err := plan.Handover(upstream.PrefillAnswer{Params: []byte(raw)}); handover != nil || err == nil || len(err.Error()) > 200 {
			t.Errorf("%.40s: got %+v, %v, want an error", raw, handover, err)
		}
	}
}

func TestConnector_DecodeIsToldTheHostOfPrefill(t *testing.T) {
	for _, row := range []struct{ url, host, answered, want string }{
		{"http://p-0:8100", "auto", `{"remote_host":"localhost","x":1.50}`, `{"remote_host":"p-0","x":1.50}`},
		{"http://p-0:8100", "pin", `{"x":1}`, `{"x":1,"remote_host":"p-0"}`},
		{"http://p-0:8100", "10.1.2.3", `{"remote_host":null}`, `{"remote_host":"10.1.2.3"}`},
		{"https://[fd00::1]", "", `{"remote_host":["a"],"remote_port":5557}`, `{"remote_host":"fd00::1","remote_port":5557}`},
		{"http://p-0", "[fd00::2]", `{}`, `{"remote_host":"fd00::2"}`},
	} {
		for _, api := range []body.API{body.Chat, body.Text} {
			_, plan := planned(t, Connector{}, api, upstream.Instance{BaseURL: row.url, KVHost: row.host})
			handover, err := plan.Handover(upstream.PrefillAnswer{Params: []byte(row.answered)})
			if err != nil {
				t.Fatalf("%+v: %v", row, err)
			}
			if leg := handover.Leg(nil); leg.API != api || string(leg.Members[0].Value) != row.want {
				t.Errorf("%+v: got %+v", row, leg)
			}
		}
	}
}

// FuzzParams compares what decode gets with what prefill answered, but for the host.
func FuzzParams(f *testing.F) {
	f.Add([]byte(`{"remote_host":"a"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		got, err := withHost(raw, "fd00::1")
		want, legal := rawjsontest.Members(raw)
		if legal = legal && len(raw) <= connector.MaxParams; legal != (err == nil) {
			t.Fatalf("%q: got %v, want accepted %t", raw, err, legal)
		}
		if !bytes.Equal(raw, before) {
			t.Fatalf("%q was changed to %q", before, raw)
		}
		if err != nil {
			return
		}
		host, found := rawjsontest.Member{Name: "remote_host", Raw: []byte(`"fd00::1"`)}, false
		for i := range want {
			if want[i].Name == host.Name {
				want[i], found = host, true
			}
		}
		if !found {
			want = append(want, host)
		}
		rawjsontest.Compare(t, got, want)
	})
}
