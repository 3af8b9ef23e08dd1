package storage

import (
	"bytes"
	"carryover/upstream/exchangetest"
	"testing"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/body"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConnector_SpeaksAsRecorded(t *testing.T) {
	prefill, decode := exchangetest.Read(t, "lmcache-storage", "01-prefill.json"), exchangetest.Read(t, "lmcache-storage", "02-decode.json")
	r, err := body.ParseRequest(body.Chat, decode.Request.Body)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Connector{}.Plan(t.Context(), upstream.Transfer{Request: r})
	if err != nil || plan.Alone != "" || plan.Together != nil || plan.Ready != nil || plan.Close != nil || plan.Prefill.API != body.Chat {
		t.Fatalf("got %+v, %v, want prefill first and no wait", plan, err)
	}
	exchangetest.Same(t, r.PrefillBody(body.LegEdit{Members: plan.Prefill.Members}).Bytes(), prefill.Request.Body)
	for _, raw := range [][]byte{prefill.Response.JSON, nil} { // nothing of the answer is read
		h, err := plan.Handover(upstream.PrefillAnswer{Body: raw})
		if err != nil || h.Bound || h.Rescue != nil || h.Head != nil || h.Left || h.Rewrite != nil {
			t.Fatalf("got %+v, %v, want a leg for any decode instance", h, err)
		}
		leg := h.Leg([]byte("[1]"))
		if raw := r.DecodeBody(body.LegEdit{Members: leg.Members}).Bytes(); leg.API != body.Chat || !bytes.Equal(raw, decode.Request.Body) {
			t.Errorf("decode is asked for %s, want the client's own request", raw)
		}
	}
	if got := (Connector{}).Traits(); got.Reuses || got.IDs {
		t.Errorf("Traits = %+v, want none", got)
	}
}
