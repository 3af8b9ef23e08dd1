package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// failing is a file that says what becomes of turns whose prefill fails.
func failing(policy string) string { return "routing: {prefill_failure: " + policy + "}\n" }

// What becomes of a turn whose prefill fails, by policy: with another instance, and with none.
func TestPrefillFailure_ByPolicy(t *testing.T) {
	t.Parallel()
	const over, alone, gone = "prefill_decode;", "decode_only;reason=prefill_failed;", "decode_only;reason=prefill_unavailable;"
	faults := map[string]vllmsim.Fault{
		"500":     {Kind: vllmsim.FaultStatus},
		"refuse":  {Kind: vllmsim.FaultRefuse},
		"restart": {Kind: vllmsim.FaultRestart, Count: 1},
	}
	for policy, rows := range map[string]map[string][2]outcome{ // one of two instances fails; both do
		"retry_other": {
			"500": {{path: over}, {path: alone}}, "refuse": {{path: over}, {path: gone}},
			"restart": {{path: over}, {path: alone}},
		},
		"decode_only": {
			"500": {{path: alone}, {path: alone}}, "refuse": {{path: gone}, {path: gone}},
			"restart": {{path: alone}, {path: alone}},
		},
		"error": {
			"500":    {{code: "prefill_failed"}, {code: "prefill_failed"}},
			"refuse": {{code: "prefill_unavailable"}, {code: "prefill_unavailable"}}, "restart": {{code: "prefill_failed"}, {code: "prefill_failed"}},
		},
	} {
		for fault, row := range rows {
			for broken, want := range row {
				t.Run(fmt.Sprintf("%s/%s/of %d", policy, fault, broken+1), func(t *testing.T) {
					t.Parallel()
					o := startOperated(t, rigConfig{
						prefill: alike(2, asConfigured), decode: alike(2, asConfigured), flags: []string{"--routing-prefill", "round_robin"},
					}, failing(policy))
					unexplained := 0
					turn := func(i int) (*answered, record.Turn) {
						a, rec := o.send(t, "", map[string]any{
							"model": "sim", "messages": []json.RawMessage{question("Now. SAY yes")}, "max_tokens": 5, "conversation_id": fmt.Sprint(i),
						})
						if a.status == http.StatusOK && rec.Path.Way == record.WayPrefillDecode && rec.Stored != "yes" {
							unexplained++ // of an instance whose start is not known yet
						}
						return a, rec
					}
					for i := range 2 { // what each instance can do is found out
						turn(i)
					}
					for _, instance := range o.prefill[:broken+1] {
						if err := instance.SetFault(faults[fault]); err != nil {
							t.Fatal(err)
						}
					}
					o.hangUp()
					met := false
					for i := 2; i < 4 && !met; i++ {
						a, rec := turn(i)
						first := rec.Leg(upstream.RolePrefill)
						if len(rec.Legs) == 2 && first.Err == nil && a.status == http.StatusOK {
							continue // the other instance came first
						}
						met = true
						wantTold(t, a, &rec, want)
					}
					if !met {
						t.Error("no turn has met the fault")
					}
					o.verify(t, pins{unused: unexplained})
				})
			}
		}
	}
}

// outcome is what a client is told of a turn whose prefill has failed.
type outcome struct {
	path string // how X-KV-Path begins
	code string // of the error instead
}

// wantTold checks it.
func wantTold(t *testing.T, a *answered, rec *record.Turn, want outcome) {
	t.Helper()
	path := a.header.Get("X-KV-Path")
	switch {
	case want.code == "" && (a.status != http.StatusOK || a.content != "yes" || !strings.HasPrefix(path, want.path)):
		t.Errorf("got status %d, %q, X-KV-Path %q, want %s", a.status, a.content, path, want.path)
	case want.code == "":
	case a.code != want.code || a.status < 500 || len(rec.Legs) > 1:
		t.Errorf("got status %d, code %q after %d legs, want %s", a.status, a.code, len(rec.Legs), want.code)
	case (a.status == http.StatusServiceUnavailable) != (a.header.Get("Retry-After") != ""):
		t.Errorf("status %d has Retry-After %q", a.status, a.header.Get("Retry-After"))
	}
}

// Decode serves sixteen turns at once without prefill; the next ones come again later, and what was taken is given back.
func TestPrefillFailure_SixteenAtOnce(t *testing.T) {
	t.Parallel()
	slow := func(c *vllmsim.Config) { c.Timing.InterToken = time.Hour }
	o := startOperated(t, rigConfig{prefill: alike(1, asConfigured), decode: alike(1, slow)}, "")
	if err := o.prefill[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultStatus}); err != nil {
		t.Fatal(err)
	}
	const most = 16
	crowd := o.crowd(t, "", most)
	refused := map[string]any{"model": "sim", "messages": []json.RawMessage{question("Now. SAY yes")}, "max_tokens": 1}
	for range 3 {
		a, _ := o.send(t, "", refused)
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || a.code != "prefill_unavailable" && a.code != "prefill_failed" {
			t.Errorf("turn %d: got status %d, code %q, Retry-After %q, want 503 and when to come again", most+1, a.status, a.code, a.header.Get("Retry-After"))
		}
	}
	if got := o.sum(t, config.RoleDecode)["running"]; got != most {
		t.Errorf("decode runs %d turns, want %d", got, most)
	}
	crowd.leave()
	if !testrig.Eventually(func() bool { return o.sum(t, config.RoleDecode)["running"] == 0 }) {
		t.Fatal("decode still runs what its clients have left")
	}
	for range 2 {
		a, _ := o.send(t, "", refused)
		if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("X-KV-Path"), "decode_only;reason=prefill_") {
			t.Errorf("after they have left: got status %d, X-KV-Path %q", a.status, a.header.Get("X-KV-Path"))
		}
	}
	o.verify(t, pins{})
}

// held is clients that have streams open which do not end.
type held struct {
	cancels []context.CancelFunc
	group   sync.WaitGroup
}

// leave has all clients go.
func (h *held) leave() {
	for _, cancel := range h.cancels {
		cancel()
	}
	h.group.Wait()
}

// crowd opens so many streams of a tenant and returns when each has had its first event. Decode has to be slow.
func (o *operated) crowd(t *testing.T, tenant string, n int) *held {
	t.Helper()
	h := &held{}
	for range n {
		began := o.open(t, h, tenant)
		select {
		case a := <-began:
			if a != nil {
				t.Fatalf("got status %d instead of a stream: %.300s", a.status, a.raw)
			}
		case <-time.After(time.Minute):
			t.Fatal("a stream does not begin")
		}
	}
	return h
}

// open sends a turn whose stream does not end until its client leaves. began gets nil at its first event, or else the answer.
func (o *operated) open(t *testing.T, h *held, tenant string) (began chan *answered) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h.cancels = append(h.cancels, cancel)
	began = make(chan *answered, 1) // one word
	h.group.Go(func() {
		streams := false
		a, _ := o.try(ctx, t, tenant, map[string]any{
			"model": "sim", "messages": []json.RawMessage{question("Go on. SAY " + longText(1))}, "max_tokens": 400, "stream": true,
		}, func(event int, _ []byte) {
			if event == 1 {
				streams = true
				began <- nil
			}
		})
		if !streams {
			began <- a
		}
	})
	return began
}
