package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// startRescue starts the program in front of one instance of each role, which gives up a silent leg soon.
func startRescue(t *testing.T, replace func(*server.Deps)) *rig {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Lease = time.Hour // blocks that wait for their lease to end are pinned when the test ends
	return startRig(t, rigConfig{
		prefill: []vllmsim.Config{cfg}, decode: []vllmsim.Config{cfg}, replace: replace,
		server: func(c *server.Config) { c.FirstByteTimeout, c.AnswerTimeout = time.Second, time.Second },
	})
}

// leased ends the program and returns how many hand-overs prefill keeps blocks for. Nothing was read wrongly.
func (r *rig) leased(t *testing.T) int {
	t.Helper()
	r.stop()
	testrig.Eventually(func() bool { return r.sum(t, "")["running"] == 0 })
	total := r.sum(t, "")
	for _, name := range wrongReads() {
		if total[name] != 0 {
			t.Errorf("%s: got %d, want 0", name, total[name])
		}
	}
	return total["leased_pins"]
}

// untaken are the ways in which decode does not take a hand-over.
func untaken() map[string]vllmsim.Fault {
	return map[string]vllmsim.Fault{
		"400":                           {Kind: vllmsim.FaultStatus, Status: http.StatusBadRequest},
		"429":                           {Kind: vllmsim.FaultStatus, Status: http.StatusTooManyRequests},
		"500":                           {Kind: vllmsim.FaultStatus, Status: http.StatusInternalServerError},
		"503":                           {Kind: vllmsim.FaultStatus, Status: http.StatusServiceUnavailable},
		"200 with an error":             {Kind: vllmsim.FaultErrorBody200},
		"HTML":                          {Kind: vllmsim.FaultWrongContentType},
		"closed connection":             {Kind: vllmsim.FaultReset},
		"closed connection, KV is read": {Kind: vllmsim.FaultLostAnswer},
		"closed behind the headers":     {Kind: vllmsim.FaultDieBeforeFirstEvent},
		"silence":                       {Kind: vllmsim.FaultSilent},
	}
}

// Whatever decode answers to a hand-over that it does not take, prefill's blocks are free when the program has ended.
func TestRescue_DecodeDoesNotTakeTheHandOver(t *testing.T) {
	t.Parallel()
	for name, fault := range untaken() {
		fault.Count = 1
		for _, stream := range []bool{false, true} {
			if stream && fault.Kind == vllmsim.FaultWrongContentType {
				continue // the simulator sends headers before it reads, and may read for the leg that was given up behind the rescue
			}
			t.Run(fmt.Sprintf("%s/stream %t", name, stream), func(t *testing.T) {
				t.Parallel()
				r := startRescue(t, nil)
				if err := r.decode[0].SetFault(fault); err != nil {
					t.Fatal(err)
				}
				r.say(t, members{"model": "sim", "messages": []json.RawMessage{question("SAY " + longText(1) + ".")}, "max_tokens": 50, "stream": stream})
				if n := r.leased(t); n != 0 {
					t.Errorf("prefill keeps the blocks of %d hand-overs", n)
				}
			})
		}
	}
}

// A client that leaves between the legs leaves nothing behind either.
func TestRescue_TheClientLeavesBetweenTheLegs(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		r := startRescue(t, nil)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		act := func(turn context.Context) {
			leave()
			<-turn.Done()
		}
		r.between.once.Store(&act)
		body := members{"model": "sim", "messages": []json.RawMessage{question("SAY " + longText(1) + ".")}, "max_tokens": 50, "stream": stream}
		_, _ = r.post(ctx, "/v1/chat/completions", http.Header{}, encode(body), nil) // the client leaves
		if n := r.leased(t); n != 0 {
			t.Errorf("stream %t: prefill keeps the blocks of %d hand-overs", stream, n)
		}
	}
}

// unsent sends no rescue.
type unsent struct{ server.Legs }

// Prefill implements server.Legs.
func (u unsent) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	if strings.HasSuffix(leg.RequestID, "-rescue") {
		return upstream.PrefillAnswer{}, &upstream.LegError{Role: upstream.RoleDecode, Instance: leg.Instance.Name, Kind: upstream.Dial, Err: errors.New("not sent")}
	}
	return u.Legs.Prefill(ctx, leg)
}

func TestMutant_WithoutARescueTheOracleSeesIt(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(*server.Deps){
		"as it is": nil,
		"mutant":   func(deps *server.Deps) { deps.Legs = unsent{deps.Legs} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRescue(t, replace)
			if err := r.decode[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultStatus, Status: http.StatusBadRequest, Count: 1}); err != nil {
				t.Fatal(err)
			}
			r.say(t, members{"model": "sim", "messages": []json.RawMessage{question("SAY " + longText(1) + ".")}, "max_tokens": 50})
			if n := r.leased(t); (n > 0) != (replace != nil) {
				t.Errorf("prefill keeps the blocks of %d hand-overs", n)
			}
		})
	}
}
