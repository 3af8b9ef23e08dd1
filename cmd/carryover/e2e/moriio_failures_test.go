package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// A prefill leg that fails ends the turn, with no word to decode that would leave it waiting.
func TestRegistered_APrefillThatFails(t *testing.T) {
	t.Parallel()
	for fault, row := range map[string]struct {
		fault  vllmsim.Fault
		code   string // with one instance, "" for an answer
		others bool   // that another instance answers
	}{
		"500":      {vllmsim.Fault{Kind: vllmsim.FaultStatus}, "prefill_failed", true},
		"refused":  {vllmsim.Fault{Kind: vllmsim.FaultRefuse}, "prefill_unavailable", true},
		"resets":   {vllmsim.Fault{Kind: vllmsim.FaultReset}, "prefill_failed", true},
		"restarts": {vllmsim.Fault{Kind: vllmsim.FaultRestart, Count: 1}, "", true},
		"silent":   {vllmsim.Fault{Kind: vllmsim.FaultSilent}, "prefill_timeout", false},
		"garbage":  {vllmsim.Fault{Kind: vllmsim.FaultGarbageJSON}, "bad_prefill_answer", false},
	} {
		for name, as := range handingOver() {
			for _, policy := range []string{"retry_other", "decode_only", "error"} {
				if policy != "retry_other" && fault != "500" && fault != "refused" { // they differ in nothing
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", fault, name, policy), func(t *testing.T) {
					t.Parallel()
					r := startRegistered(t, registeredConfig{as: as, text: failing(policy)})
					r.over(t, saying("one"), "one")
					r.setFault(t, r.prefill[0], row.fault)
					if fault == "garbage" { // decode must not have the KV before prefill has answered
						if err := r.decode[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultSlowHeaders, Delay: 10 * time.Second}); err != nil {
							t.Fatal(err)
						}
					}
					r.hangUp()
					before := r.sum(t, config.RoleDecode)["requests"]
					a, record := r.send(t, "", saying("two"))
					want := row.code
					if a.code != want || want == "" && (a.status != http.StatusOK || a.content != "two") || want != "" && a.status < 500 {
						t.Errorf("got status %d, code %q, %q, want %q (%v)", a.status, a.code, a.content, want, record.End.Err)
					}
					if got := r.sum(t, config.RoleDecode)["requests"] - before; !as.together() && want != "" && got > 0 {
						t.Errorf("decode got %d requests without a hand-over", got)
					}
					if !testrig.Eventually(func() bool { return r.sum(t, "")["running"] == 0 }) {
						t.Errorf("%d requests still run", r.sum(t, "")["running"])
					}
					r.settledUntaken(t, 0)
				})
			}
			t.Run(fmt.Sprintf("%s/%s/another instance", fault, name), func(t *testing.T) {
				t.Parallel()
				if !row.others {
					return
				}
				r := startRegistered(t, registeredConfig{as: as, prefills: 2, flags: []string{"--routing-prefill", "round_robin"}})
				if err := r.prefill[0].SetFault(row.fault); err != nil {
					t.Fatal(err)
				}
				r.hangUp()
				for _, want := range []string{"one", "two"} {
					r.over(t, saying(want), want)
				}
				r.settledUntaken(t, 0)
			})
		}
	}
}

// together says that both legs go out at once.
func (as speaking) together() bool { return !as.read }

// What becomes of a turn whose decode leg fails. Each attempt has ids of its own, so that no second one takes the KV of the first.
func TestRegistered_ADecodeThatFails(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fault  vllmsim.Fault
		status int
		failed int // legs whose KV nobody takes
	}{
		"500 once":      {vllmsim.Fault{Kind: vllmsim.FaultStatus, Count: 1}, http.StatusOK, 1},
		"500":           {vllmsim.Fault{Kind: vllmsim.FaultStatus}, http.StatusBadGateway, 2},
		"resets once":   {vllmsim.Fault{Kind: vllmsim.FaultReset, Count: 1}, http.StatusOK, 1},
		"restarts once": {vllmsim.Fault{Kind: vllmsim.FaultRestart, Count: 1}, http.StatusOK, 1},
		"silent":        {vllmsim.Fault{Kind: vllmsim.FaultSilent}, http.StatusGatewayTimeout, 1},
		"refused":       {vllmsim.Fault{Kind: vllmsim.FaultRefuse}, http.StatusServiceUnavailable, 1},
	} {
		for how, as := range handingOver() {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/stream=%t", name, how, stream), func(t *testing.T) {
					t.Parallel()
					r := startRegistered(t, registeredConfig{as: as})
					r.over(t, saying("one"), "one")
					r.setFault(t, r.decode[0], row.fault)
					r.hangUp()
					ask := saying("two")
					ask["stream"] = stream
					a, record := r.send(t, "", ask)
					if a.status != row.status || a.status == http.StatusOK && a.content != "two" {
						t.Errorf("got status %d, %q, want %d (%v)", a.status, a.content, row.status, record.End.Err)
					}
					if !testrig.Eventually(func() bool { return r.sum(t, "")["running"] == 0 }) {
						t.Errorf("%d requests still run", r.sum(t, "")["running"])
					}
					if untaken := r.untaken(t); untaken > row.failed {
						t.Errorf("prefill holds the KV of %d prompts, want that of the legs that failed, %d", untaken, row.failed)
					}
					r.settledUntaken(t, 0)
				})
			}
		}
	}
}

// The hand-over is for one decode instance: one that refuses the connection is left with another prefill leg.
func TestRegistered_ADecodeThatRefuses(t *testing.T) {
	t.Parallel()
	for name, as := range handingOver() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRegistered(t, registeredConfig{as: as, decodes: 2, flags: []string{"--routing-decode", "round_robin"}})
			if err := r.decode[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
				t.Fatal(err)
			}
			r.hangUp()
			for _, want := range []string{"one", "two"} {
				r.over(t, saying(want), want)
			}
			total := r.sum(t, config.RoleDecode)
			if total["kv_held"] > 2 {
				t.Errorf("decode holds the KV of %d prompts", total["kv_held"])
			}
			r.settledUntaken(t, total["kv_held"])
		})
	}
}

func TestRegistered_DecodeBreaksOffInsideAStream(t *testing.T) {
	t.Parallel()
	for name, as := range handingOver() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRegistered(t, registeredConfig{as: as})
			if err := r.decode[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultDieMidEvent, Events: 3, Count: 1}); err != nil {
				t.Fatal(err)
			}
			ask := saying(longText(1))
			ask["stream"], ask["max_tokens"] = true, 400
			if a, record := r.send(t, "", ask); a.ends != endsBroken || record.End.Err == nil {
				t.Errorf("got an answer that ends %s (%v), want it broken", a.ends, record.End.Err)
			}
			r.hangUp()
			r.over(t, ask, longText(1))
			r.settled(t, pins{}, 0)
		})
	}
}

// A client that leaves strands nothing, whatever its turn is doing.
func TestRegistered_ClientLeaves(t *testing.T) {
	t.Parallel()
	timing := func(of func(r *registered) *vllmsim.Instance, timing vllmsim.Timing) func(r *registered) error {
		return func(r *registered) error { return of(r).Switch(vllmsim.Switches{Timing: &timing}) }
	}
	prefill := func(r *registered) *vllmsim.Instance { return r.prefill[0] }
	decode := func(r *registered) *vllmsim.Instance { return r.decode[0] }
	for phase, row := range map[string]struct {
		set  func(r *registered) error
		here func(r *registered) bool
	}{
		"while prefill computes": {
			// With both legs at once it goes on: decode keeps its blocks until prefill has written to them. Before decode has told prefill
			// where, prefill keeps what it computes for its time limit. It computes for four seconds, a tenth of what is said here.
			timing(prefill, vllmsim.Timing{PrefillPerToken: 200 * time.Millisecond}),
			func(r *registered) bool {
				return prefill(r).Stats().Running == 1 && (!r.as.together() || decode(r).Stats().Loading == 1)
			},
		},
		"before decode has begun": {
			timing(decode, vllmsim.Timing{Overhead: 20 * time.Second}),
			// A release that comes before prefill has finished finds nothing.
			func(r *registered) bool { return decode(r).Stats().Running == 1 && prefill(r).Stats().Finished == 1 },
		},
		"in the answer": {
			timing(decode, vllmsim.Timing{InterToken: time.Hour}),
			func(r *registered) bool { return decode(r).Stats().Loads == 1 },
		},
	} {
		for name, as := range handingOver() {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/stream=%t", phase, name, stream), func(t *testing.T) {
					t.Parallel()
					r := startRegistered(t, registeredConfig{as: as})
					if err := row.set(r); err != nil {
						t.Fatal(err)
					}
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					ended := make(chan string, 1) // one id
					go func() {
						ask := saying(longText(1))
						ask["stream"] = stream
						_, id := r.try(ctx, t, "", ask, unwatched)
						ended <- id
					}()
					if !testrig.Eventually(func() bool { return row.here(r) }) {
						t.Fatalf("it never came to that: %v %v", r.sum(t, config.RolePrefill), r.sum(t, config.RoleDecode))
					}
					leave()
					id := <-ended
					if !within(2*foundWithin, func() bool { return len(r.turns.turn(id)) == 1 }) { // ten seconds for a whole answer
						t.Fatal("the turn has not ended")
					}
					if !within(foundWithin, func() bool { return r.sum(t, "")["running"] == 0 }) {
						t.Errorf("%d requests still run", r.sum(t, "")["running"])
					}
					r.settled(t, pins{}, 0)
				})
			}
		}
	}
}

// Between the legs prefill's KV is already at decode, or waits for it: decode gets a leg all the same.
func TestRegistered_ClientLeavesBetweenTheLegs(t *testing.T) {
	t.Parallel()
	for name, as := range handingOver() {
		if as.together() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRegistered(t, registeredConfig{as: as})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			act := func(turn context.Context) {
				leave()
				<-turn.Done()
			}
			r.between.once.Store(&act)
			_, id := r.try(ctx, t, "", saying("one"), unwatched)
			r.turns.await(t, id)
			if !testrig.Eventually(func() bool { return r.decode[0].Stats().Finished == 1 }) {
				t.Errorf("decode has finished %d requests, want the one that takes the KV", r.decode[0].Stats().Finished)
			}
			r.settled(t, pins{}, 0)
		})
	}
}
