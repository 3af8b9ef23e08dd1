package moriio

import (
	"strings"
	"testing"

	"carryover/upstream"
)

func TestRequestID_IsOneOfVLLMs(t *testing.T) {
	transfer := upstream.Transfer{
		RequestID: "0123456789abcdef0123456789abcdef",
		Prefill:   &upstream.Instance{Announced: upstream.Announcement{Address: "host:10.0.1.2,handshake:21001,notify:21002"}},
		Decode:    &upstream.Instance{Announced: upstream.Announcement{Address: "host:10.0.1.3,handshake:22001,notify:22002"}},
	}
	want := "___prefill_addr_host:10.0.1.2,handshake:21001,notify:21002___decode_addr_host:10.0.1.3,handshake:22001,notify:22002_"
	if got := addressedID(transfer); got != want+transfer.RequestID {
		t.Errorf("got %s", got)
	}
	seen := map[string]bool{}
	for _, id := range []string{"", "r", "r2", strings.ToUpper(transfer.RequestID), transfer.RequestID + "0"} {
		transfer.RequestID = id
		tail, ok := strings.CutPrefix(addressedID(transfer), want)
		if !ok || len(tail) != 32 || strings.Trim(tail, "0123456789abcdef") != "" || seen[tail] {
			t.Errorf("%q: got the tail %q, want 32 digits of its own", id, tail)
		}
		seen[tail] = true
	}
}

func TestRenamed_ShowsNoAddress(t *testing.T) {
	r := renamed{request: "___prefill_addr_a:1___decode_addr_b:2_00", shown: "turn"}
	event := `{"id":"chatcmpl-` + r.request + `","choices":[{"delta":{"content":"___prefill_addr_"}}]}`
	want := `{"id":"chatcmpl-turn","choices":[{"delta":{"content":"___prefill_addr_"}}]}`
	if got := string(r.Event([]byte(event))); got != want {
		t.Errorf("got %s", got)
	}
	if got, err := r.Body([]byte(event)); err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	if got := string(r.Event([]byte("[]"))); got != "[]" {
		t.Errorf("got %s of an event without it", got)
	}
}
