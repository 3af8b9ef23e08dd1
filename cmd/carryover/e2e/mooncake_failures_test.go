package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// A prefill leg that fails ends the decode leg at once: decode would wait for 480 s.
func TestMooncake_APrefillThatFails(t *testing.T) {
	t.Parallel()
	const over, alone, gone = "prefill_decode;", "decode_only;reason=prefill_failed;", "decode_only;reason=prefill_unavailable;"
	faults := map[string]vllmsim.Fault{
		"500":      {Kind: vllmsim.FaultStatus},
		"refused":  {Kind: vllmsim.FaultRefuse},
		"resets":   {Kind: vllmsim.FaultReset},
		"silent":   {Kind: vllmsim.FaultSilent},
		"restarts": {Kind: vllmsim.FaultRestart, Count: 1},
		"garbage":  {Kind: vllmsim.FaultGarbageJSON},
	}
	for policy, rows := range map[string]map[string]outcome{
		"retry_other": {
			"500": {path: alone}, "refused": {path: gone}, "resets": {path: alone}, "silent": {path: alone}, "restarts": {path: over}, "garbage": {path: alone},
		},
		"decode_only": {"500": {path: alone}, "refused": {path: gone}, "silent": {path: alone}, "garbage": {path: alone}},
		"error": {
			"500": {code: "prefill_failed"}, "refused": {code: "prefill_unavailable"}, "silent": {code: "prefill_timeout"}, "garbage": {code: "bad_prefill_answer"},
		},
	} {
		for fault, want := range rows {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/stream=%t", policy, fault, stream), func(t *testing.T) {
					t.Parallel()
					o := startMooncake(t, pushing{text: failing(policy)})
					ask := map[string]any{"model": "sim", "messages": []json.RawMessage{question("SAY yes")}, "max_tokens": 50, "stream": stream}
					o.turnOver(t, ask, "yes")
					o.setFault(t, o.prefill[0], faults[fault])
					if fault == "garbage" { // decode must not have the KV before prefill has answered; its leg may come later than that, or never
						o.setFault(t, o.decode[0], vllmsim.Fault{Kind: vllmsim.FaultSlowHeaders, Delay: 30 * time.Second, Handovers: true})
					}
					o.hangUp()
					began := time.Now()
					a, rec := o.sent(t, ask)
					if took := time.Since(began); took > time.Minute {
						t.Errorf("answered after %v", took)
					}
					wantEnd(t, a, &rec, want)
					o.idle(t)
					o.verifyPins(t, func() pins {
						total := o.sum(t, config.RolePrefill)
						return pins{leased: total["capped"] - total["reads"]}
					})
				})
			}
		}
	}
}

// wantEnd checks what a client is told of a turn.
func wantEnd(t *testing.T, a *answered, rec *record.Turn, want outcome) {
	t.Helper()
	path := a.header.Get("X-KV-Path")
	switch {
	case want.code == "" && (a.status != http.StatusOK || a.content != "yes" || !strings.HasPrefix(path, want.path)):
		t.Errorf("got status %d, %q, X-KV-Path %q, want %s (%v)", a.status, a.content, path, want.path, rec.End.Err)
	case want.code != "" && (a.status < 500 || a.code != want.code):
		t.Errorf("got status %d, code %q, want %s (%v)", a.status, a.code, want.code, rec.End.Err)
	}
}

// What becomes of a turn whose decode leg fails. What prefill has left for it waits for the limit of Mooncake.
func TestMooncake_ADecodeThatFails(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fault  vllmsim.Fault
		status int
	}{
		"500 once":      {vllmsim.Fault{Kind: vllmsim.FaultStatus, Count: 1}, http.StatusOK},
		"500":           {vllmsim.Fault{Kind: vllmsim.FaultStatus}, http.StatusBadGateway},
		"resets once":   {vllmsim.Fault{Kind: vllmsim.FaultReset, Count: 1}, http.StatusOK},
		"restarts once": {vllmsim.Fault{Kind: vllmsim.FaultRestart, Count: 1}, http.StatusOK},
		"silent":        {vllmsim.Fault{Kind: vllmsim.FaultSilent}, http.StatusGatewayTimeout},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%t", name, stream), func(t *testing.T) {
				t.Parallel()
				o := startMooncake(t, pushing{})
				ask := map[string]any{"model": "sim", "messages": []json.RawMessage{question("SAY yes")}, "max_tokens": 50, "stream": stream}
				o.turnOver(t, ask, "yes")
				o.setFault(t, o.decode[0], row.fault)
				o.hangUp()
				a, rec := o.sent(t, ask)
				if a.status != row.status || a.status == http.StatusOK && a.content != "yes" {
					t.Errorf("got status %d, %q, want %d (%v)", a.status, a.content, row.status, rec.End.Err)
				}
				o.idle(t)
				o.verifyPins(t, func() pins {
					total := o.sum(t, config.RolePrefill)
					return pins{leased: total["capped"] - total["reads"] - total["releases"]}
				})
			})
		}
	}
}

// The hand-over is bound to no decode instance: one that refuses the connection is left for another.
func TestMooncake_ADecodeThatRefuses(t *testing.T) {
	t.Parallel()
	o := startMooncake(t, pushing{decodes: 2, flags: []string{"--routing-decode", "round_robin"}})
	if err := o.decode[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
		t.Fatal(err)
	}
	o.hangUp()
	for range 2 {
		rec := o.turnOver(t, map[string]any{"model": "sim", "messages": []json.RawMessage{question("SAY yes")}, "max_tokens": 50}, "yes")
		if rec.Retries != 0 {
			t.Errorf("%d retries, want the same hand-over at the other instance", rec.Retries)
		}
	}
	o.verify(t, pins{})
}

func TestMooncake_DecodeBreaksOffInsideAStream(t *testing.T) {
	t.Parallel()
	o := startMooncake(t, pushing{})
	if err := o.decode[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultDieMidEvent, Events: 3, Count: 1}); err != nil {
		t.Fatal(err)
	}
	ask := map[string]any{"model": "sim", "messages": []json.RawMessage{question("SAY " + longText(1))}, "max_tokens": 400, "stream": true}
	if a, rec := o.sent(t, ask); a.ends != endsBroken || rec.End.Err == nil {
		t.Errorf("got an answer that ends %s (%v), want it broken", a.ends, rec.End.Err)
	}
	o.hangUp()
	o.turnOver(t, ask, longText(1))
	o.verify(t, pins{})
}

// A prefill instance that was restarted has another engine id.
func TestMooncake_PrefillRestartedBetweenTurns(t *testing.T) {
	t.Parallel()
	for _, noticed := range []bool{true, false} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("noticed=%t,stream=%t", noticed, stream), func(t *testing.T) {
				t.Parallel()
				// The second turn goes to a decode instance that has never heard of the prefill instance: one that has waits for its old engine.
				o := startMooncake(t, pushing{decodes: 2, flags: []string{"--routing-decode", "round_robin"}, change: fifty})
				ask := map[string]any{"model": "sim", "messages": []json.RawMessage{question("SAY yes")}, "max_tokens": 50, "stream": stream}
				o.turnOver(t, ask, "yes")
				restart := func() {
					o.prefill[0].Restart()
					o.hangUp()
				}
				if noticed {
					restart()
				} else { // when the turn has read which start is alive
					o.between.atLeg(restart)
				}
				rec := o.turnOver(t, ask, "yes")
				if retried := rec.Retries > 0; retried == noticed {
					t.Errorf("%d retries, want some if the restart was not noticed", rec.Retries)
				}
				if noticed {
					o.turnOver(t, ask, "yes")
				}
				o.idle(t)
				o.verify(t, pins{}) // decode's failure ends prefill's leg, and with it what prefill holds
			})
		}
	}
}

func TestMooncake_DecodeRestartedBetweenTurns(t *testing.T) {
	t.Parallel()
	o := startMooncake(t, pushing{})
	d := foretold{rig: o, id: "c", stream: true}
	d.say(t, longText(1))
	o.decode[0].Restart()
	o.hangUp()
	o.look()
	d.say(t, "And then?")
	o.verify(t, pins{})
}

// A client that leaves ends both legs, whatever they are doing.
func TestMooncake_ClientLeaves(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		set  func(o *rig) error
		here func(o *rig) bool
	}{
		"while prefill computes": {
			func(o *rig) error {
				// It goes on: decode keeps its blocks until prefill has written to them.
				return o.prefill[0].Switch(vllmsim.Switches{Timing: &vllmsim.Timing{PrefillPerToken: 10 * time.Millisecond}})
			},
			func(o *rig) bool {
				return o.prefill[0].Stats().Running == 1 && o.decode[0].Stats().Loading == 1
			},
		},
		"before prefill has begun": {
			func(o *rig) error {
				return o.prefill[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultSilent})
			},
			func(o *rig) bool { return o.decode[0].Stats().Loading == 1 },
		},
		"while KV is transferred": {
			func(o *rig) error {
				return o.decode[0].Switch(vllmsim.Switches{Timing: &vllmsim.Timing{TransferPerBlock: time.Second}})
			},
			func(o *rig) bool { return o.prefill[0].Stats().Reads == 1 },
		},
		"while decode has not begun": {
			func(o *rig) error {
				return o.decode[0].Switch(vllmsim.Switches{Timing: &vllmsim.Timing{Overhead: time.Hour}})
			},
			func(o *rig) bool { return o.decode[0].Stats().Running == 1 && o.prefill[0].Stats().Pins == 1 },
		},
		"in the answer": {
			func(o *rig) error {
				return o.decode[0].Switch(vllmsim.Switches{Timing: &vllmsim.Timing{InterToken: time.Hour}})
			},
			func(o *rig) bool { return o.decode[0].Stats().Loads == 1 && o.prefill[0].Stats().Finished == 1 },
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%t", name, stream), func(t *testing.T) {
				t.Parallel()
				o := startMooncake(t, pushing{})
				if err := row.set(o); err != nil {
					t.Fatal(err)
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				ended := make(chan string, 1) // one id
				go func() {
					_, id := o.try(ctx, t, map[string]any{
						"model": "sim", "messages": []json.RawMessage{question(longText(1))}, "max_tokens": 50, "stream": stream,
					})
					ended <- id
				}()
				if !testrig.Eventually(func() bool { return row.here(o) }) {
					t.Fatalf("it never came to that: %v %v", o.sum(t, config.RolePrefill), o.sum(t, config.RoleDecode))
				}
				leave()
				id := <-ended
				o.idle(t)
				for _, leg := range o.turns.await(t, id).Legs {
					if leg.Role == upstream.RolePrefill && leg.Took > time.Minute {
						t.Errorf("the prefill leg took %v", leg.Took)
					}
				}
				o.verify(t, pins{})
			})
		}
	}
}

// failing is a file that says what becomes of turns whose prefill fails.
func failing(policy string) string { return "routing: {prefill_failure: " + policy + "}\n" }

// outcome is what a client is told of a turn whose prefill has failed.
type outcome struct {
	path string // how X-KV-Path begins
	code string // of the error instead
}
