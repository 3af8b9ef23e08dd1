package p2pnccl

import (
	"encoding/json"
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

// exchange is what an engine is asked, as the fact sheet of vLLM's source has it (testdata/exchanges/p2pnccl).
type exchange struct {
	Request struct {
		Path    string
		Headers map[string]string
		Body    json.RawMessage
	}
	Response struct{ JSON json.RawMessage }
}

func written(t *testing.T, name string) (e exchange) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "exchanges", "p2pnccl", name))
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const tail = "4f5d0c2b9a8e47d1b3c6f70812345678"

// between is an attempt of a request between two engines that have announced these addresses.
func between(t *testing.T, prefill, decode string, api body.API, raw string) upstream.Transfer {
	t.Helper()
	request, err := body.ParseRequest(api, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return upstream.Transfer{
		Request: request, RequestID: tail,
		Prefill: &upstream.Instance{Role: upstream.RolePrefill, Announced: upstream.Announcement{Address: prefill}},
		Decode:  &upstream.Instance{Role: upstream.RoleDecode, Announced: upstream.Announcement{Address: decode}},
	}
}

// same compares JSON.
func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %s: %v", what, got, err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(g)
	b, _ := json.Marshal(w)
	if string(a) != string(b) {
		t.Errorf("%s: got %s, want %s", what, a, b)
	}
}

func TestConnector_SpeaksAsWritten(t *testing.T) {
	p, d := written(t, "02-prefill.json"), written(t, "03-decode.json")
	transfer := between(t, "10.0.1.2:21001", "10.0.1.3:22001", body.Chat, string(d.Request.Body))
	plan, err := Connector{}.Plan(transfer)
	if err != nil || plan.Order != upstream.PrefillFirst {
		t.Fatalf("got %+v, %v", plan, err)
	}
	handover, err := plan.Handover(upstream.PrefillAnswer{Body: p.Response.JSON})
	if err != nil || !handover.Bound || handover.Cached != -1 || handover.Head != nil || handover.Whole != nil {
		t.Fatalf("got %+v, %v; want one for that decode instance alone", handover, err)
	}
	leg := handover.Leg([]byte("[1,2]"))
	for name, row := range map[string]struct {
		got  upstream.LegPlan
		body []byte
		want exchange
	}{
		"prefill": {plan.Prefill, transfer.Request.PrefillBody(body.PrefillEdit{Members: plan.Prefill.Members}).Bytes(), p},
		"decode":  {leg, transfer.Request.DecodeBody(body.DecodeEdit{Members: leg.Members}).Bytes(), d},
	} {
		if row.got.RequestID != row.want.Request.Headers["X-Request-Id"] || row.got.API.Path() != row.want.Request.Path || row.got.Rank != "" {
			t.Errorf("%s: got %+v, want %s with the id %s", name, row.got, row.want.Request.Path, row.want.Request.Headers["X-Request-Id"])
		}
		same(t, name, row.body, row.want.Request.Body)
	}
	body, err := handover.Rewrite.Body(d.Response.JSON)
	if err != nil || strings.Contains(string(body), "10.0.1") || !strings.Contains(string(body), `"chatcmpl-`+tail) {
		t.Errorf("the client gets %s, %v; want no addresses of engines", body, err)
	}
}

func TestConnector_EnginesReadEachOther(t *testing.T) {
	ofPrefill, ofDecode := regexp.MustCompile(`___prefill_addr_(.*):(\d+)___`), regexp.MustCompile(`___decode_addr_(.*):(\d+)`)
	for _, row := range [][2]string{{"10.0.1.2:21001", "10.0.1.3:22001"}, {"[fd00::1]:1", "[fd00::2]:2"}, {"p-0.pods:14579", "d-0.pods:14579"}} {
		plan, err := Connector{}.Plan(between(t, row[0], row[1], body.Text, `{"prompt":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		id := "cmpl-" + plan.Prefill.RequestID + "-0"
		if got := ofDecode.FindStringSubmatch(id); len(got) != 3 || got[1]+":"+got[2] != row[1] {
			t.Errorf("%s: prefill reads %q, want %s", id, got, row[1])
		}
		if got := ofPrefill.FindStringSubmatch(id); len(got) != 3 || got[1]+":"+got[2] != row[0] {
			t.Errorf("%s: decode reads %q, want %s", id, got, row[0])
		}
	}
}

func TestConnector_OnlyEnginesThatHaveRegistered(t *testing.T) {
	const good, long = "10.0.1.2:1", "host:10.0.1.2,handshake:1,notify:2"
	for _, row := range [][2]string{{"", good}, {good, ""}, {"", ""}, {long, good}, {good, long}} {
		plan, err := Connector{}.Plan(between(t, row[0], row[1], body.Chat, `{"messages":[]}`))
		if err != nil || plan.Order != upstream.DecodeAlone || plan.Why != "not_registered" {
			t.Errorf("%q: got %+v, %v", row, plan, err)
		}
	}
	if traits := (Connector{}).Traits(); !traits.NeedsPrefill || traits.IDs || traits.Reuses {
		t.Errorf("got %+v", traits)
	}
}

// KV that nobody takes stays in decode's memory under its id, and a second one under that id would be taken for it.
func TestConnector_EachAttemptHasAnIDOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{tail, strings.Repeat("a", 32), "r"} {
		transfer := between(t, "10.0.1.2:1", "10.0.1.3:1", body.Chat, `{"messages":[]}`)
		transfer.RequestID = id
		plan, err := Connector{}.Plan(transfer)
		if err != nil || seen[plan.Prefill.RequestID] {
			t.Errorf("%q: got the id %s, %v", id, plan.Prefill.RequestID, err)
		}
		seen[plan.Prefill.RequestID] = true
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
