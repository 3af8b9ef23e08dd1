package storage

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/body"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exchange is one file of testdata/exchanges/lmcache-storage.
func exchange(t *testing.T, name string) (asked, answered []byte) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "exchanges", "lmcache-storage", name))
	if err != nil {
		t.Fatal(err)
	}
	var e struct {
		Request  struct{ Body json.RawMessage }
		Response struct{ JSON json.RawMessage }
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	return e.Request.Body, e.Response.JSON
}

func TestConnector_SpeaksAsRecorded(t *testing.T) {
	client, _ := exchange(t, "02-decode.json")
	prefill, answer := exchange(t, "01-prefill.json")
	r, err := body.ParseRequest(body.Chat, client)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Connector{}.Plan(t.Context(), upstream.Transfer{Request: r})
	if err != nil || plan.Alone != "" || plan.Together != nil || plan.Ready != nil || plan.Close != nil {
		t.Fatalf("got %+v, %v, want prefill first and no wait", plan, err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(r.PrefillBody(body.PrefillEdit{Members: plan.Prefill.Members}).Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(prefill, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) || plan.Prefill.API != body.Chat {
		t.Errorf("prefill is asked for %v, want %v", got, want)
	}
	for _, raw := range [][]byte{answer, nil} { // nothing of the answer is read
		h, err := plan.Handover(upstream.PrefillAnswer{Body: raw})
		if err != nil || h.Bound || h.Rescue != nil || h.Head != nil || h.Left || h.Rewrite != nil {
			t.Fatalf("got %+v, %v, want a leg for any decode instance", h, err)
		}
		leg := h.Leg([]byte("[1]"))
		if raw := r.DecodeBody(body.DecodeEdit{Members: leg.Members}).Bytes(); leg.API != body.Chat || !bytes.Equal(raw, client) {
			t.Errorf("decode is asked for %s, want the client's own request", raw)
		}
	}
}

func TestConnector_MakesNoTickets(t *testing.T) {
	if parsed, err := (Connector{}).ParseTicket([]byte(`{}`), 16); err == nil || !reflect.DeepEqual(parsed, upstream.TicketParams{}) {
		t.Errorf("ParseTicket = %+v, %v, want an error", parsed, err)
	}
	if _, err := (Connector{}).Release(upstream.TicketOffer{}, "m"); err == nil {
		t.Error("Release has something to release")
	}
	if got := (Connector{}).Traits(); got.Reuses || got.IDs {
		t.Errorf("Traits = %+v, want none", got)
	}
}
