package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// startRescue starts the program in front of one instance of each role, which gives up a silent leg soon.
func startRescue(t *testing.T, replace func(*server.Deps)) *rig {
	t.Helper()
	return startRig(t, rigConfig{
		cfg: engineWith(`{"lease":3600000000000}`), replace: replace, // blocks that wait for their lease to end are pinned when the test ends
		server: func(c *server.Config) { c.FirstByteTimeout, c.AnswerTimeout = time.Second, time.Second },
	})
}

// leased ends the program and returns how many hand-overs prefill keeps blocks for. Nothing was read wrongly.
func (r *rig) leased(t *testing.T) int {
	t.Helper()
	r.stop()
	testrig.Eventually(func() bool { return r.sum("")["running"] == 0 })
	r.nothingWrong(t)
	return r.sum("")["leased_pins"]
}

// untaken are the ways in which decode does not take a hand-over.
func untaken() map[string]vllmsim.Fault {
	faults := map[string]vllmsim.Fault{}
	for name, kind := range map[string]string{
		"200 with an error": vllmsim.FaultErrorBody200, "HTML": vllmsim.FaultWrongContentType, "closed connection": vllmsim.FaultReset,
		"closed connection, KV is read": vllmsim.FaultLostAnswer, "closed behind the headers": vllmsim.FaultDieBeforeFirstEvent, "silence": vllmsim.FaultSilent,
		"an error in place of a token": vllmsim.FaultErrorEvent, "garbage": vllmsim.FaultGarbageJSON, "half an answer": vllmsim.FaultTruncatedJSON,
	} {
		faults[name] = vllmsim.Fault{Kind: kind}
	}
	for _, code := range []int{400, 401, 403, 404, 413, 422, 429, 500, 501, 503} {
		faults[strconv.Itoa(code)] = vllmsim.Fault{Kind: vllmsim.FaultStatus, Status: code}
	}
	return faults
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
				for _, path := range []string{"/v1/chat/completions", "/v1/completions", pathMessages, pathResponses} {
					r := startRescue(t, nil)
					r.setFault(t, r.decode[0], fault)
					if _, err := r.post(t.Context(), path, nil, encode(shortAsk(path, 1, stream)), unwatched); err != nil {
						t.Error(err)
					}
					if n := r.leased(t); n != 0 {
						t.Errorf("%s: prefill keeps the blocks of %d hand-overs", path, n)
					}
					if n := r.proxy.Server.Counts().Stranded; n != 0 {
						t.Errorf("%s: %d hand-overs count as stranded", path, n)
					}
				}
			})
		}
	}
}

// What decode refuses in its serving layer, it has had prefill free (vLLM #41269, measured on 0.33): nothing is stranded, although the rescue is
// refused in the same words.
func TestRescue_OfWhatTheEngineHasFreed(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", pathMessages, pathResponses} {
		for _, stream := range []bool{false, true} {
			r := startRig(t, rigConfig{
				prefill: []vllmsim.Config{vllmsim.DefaultConfig()}, decode: []vllmsim.Config{engineWith(`{"max_model_len":80}`)},
				tamper: &tampering{role: config.RoleDecode, answer: func(_ string, body []byte) []byte {
					return bytes.ReplaceAll(body, []byte(`"max_model_len":80`), []byte(`"max_model_len":null`))
				}},
			})
			a, err := r.post(t.Context(), path, nil, encode(shortAsk(path, 1, stream)), unwatched)
			if err != nil || a.status != http.StatusBadRequest {
				t.Fatalf("%s: %v, %+v", path, err, a)
			}
			r.verify(t, pins{})
			if r.atPrefill("computed_tokens") == 0 {
				t.Errorf("%s, stream %t: decode has refused before prefill", path, stream)
			}
			if n := r.proxy.Server.Counts().Stranded; n != 0 {
				t.Errorf("%s, stream %t: %d hand-overs count as stranded", path, stream, n)
			}
		}
	}
}

// unsent sends no rescue.
type unsent struct{ upstream.Legs }

// Prefill implements upstream.Legs.
func (u unsent) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	if strings.HasSuffix(leg.RequestID, "-rescue") {
		return upstream.PrefillAnswer{}, &upstream.LegError{Role: upstream.RoleDecode, Instance: leg.Instance.Name, Kind: upstream.Dial, Err: errors.New("not sent")}
	}
	return u.Legs.Prefill(ctx, leg)
}

func TestMutant_WithoutARescueTheOracleSeesIt(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, mutant bool) {
		r := startRescue(t, func(deps *server.Deps) {
			if mutant {
				deps.Legs = unsent{deps.Legs}
			}
		})
		r.setFault(t, r.decode[0], vllmsim.Fault{Kind: vllmsim.FaultStatus, Status: http.StatusBadRequest, Count: 1})
		r.say(t, object{"model": "sim", "messages": speech{says(1)}, "max_tokens": 50})
		if n := r.leased(t); (n > 0) != mutant {
			t.Errorf("prefill keeps the blocks of %d hand-overs", n)
		}
	})
}
