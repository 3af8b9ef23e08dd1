package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/upstream/vllmsim"
)

// longQuestion is one of several chunks.
func longQuestion(n int) string {
	return longText(n) + longText(n+1) + longText(n+2) + longText(n+3) + longText(n+4) + ". SAY " + longText(n+5) + "."
}

// fallen is what becomes of a turn.
type fallen struct {
	status int    // 200 if 0; then the answer is that of an engine alone
	code   string // of the error
	way    string
}

// expect asks once and holds the answer against what is to become of the turn.
func (r *lmcacheRig) expect(t *testing.T, want fallen, body members) *answered {
	t.Helper()
	if want.status == 0 {
		return r.alike(t, want.way, body)
	}
	a := r.say(t, body)
	// A stream whose head is out can't change its status any more.
	if late := a.status == http.StatusOK && body["stream"] == true && a.ends == endsBroken && a.code != ""; a.status != want.status && !late || a.code != want.code {
		t.Errorf("got %d, %q, ends %s, want %d, %q: %.400s", a.status, a.code, a.ends, want.status, want.code, a.raw)
	}
	return a
}

func TestLMCache_PrefillFails(t *testing.T) {
	t.Parallel()
	failed, gone := atDecode+"prefill_failed;", atDecode+"prefill_unavailable;"
	for name, c := range map[string]struct {
		fault    vllmsim.Fault
		of1, of2 fallen // with one sender, and with another beside it
		flags    []string
	}{
		"refused":     {fault: vllmsim.Fault{Kind: vllmsim.FaultRefuse}, of1: fallen{way: gone}, of2: fallen{way: overPrefill}},
		"500":         {fault: vllmsim.Fault{Kind: vllmsim.FaultStatus}, of1: fallen{way: failed}, of2: fallen{way: overPrefill}},
		"reset":       {fault: vllmsim.Fault{Kind: vllmsim.FaultReset}, of1: fallen{way: failed}, of2: fallen{way: overPrefill}},
		"garbage":     {fault: vllmsim.Fault{Kind: vllmsim.FaultGarbageJSON}, of1: fallen{way: failed}, of2: fallen{}},
		"cut":         {fault: vllmsim.Fault{Kind: vllmsim.FaultTruncatedJSON}, of1: fallen{way: failed}, of2: fallen{}},
		"null params": {fault: vllmsim.Fault{Kind: vllmsim.FaultNullParams}, of1: fallen{way: overPrefill}, of2: fallen{way: overPrefill}},
		"silent": {
			fault: vllmsim.Fault{Kind: vllmsim.FaultSilent, Route: "/v1/completions"},
			of1:   fallen{way: failed}, of2: fallen{way: overPrefill},
		},
		"restarts": {fault: vllmsim.Fault{Kind: vllmsim.FaultRestart, Route: "/v1/completions", Count: 1}, of1: fallen{way: overPrefill}, of2: fallen{way: overPrefill}},
		"500, by policy": {
			fault: vllmsim.Fault{Kind: vllmsim.FaultStatus}, flags: []string{"--prefill-failure", "error"},
			of1: fallen{status: 502, code: "prefill_failed"}, of2: fallen{status: 502, code: "prefill_failed"},
		},
	} {
		for n, want := range []fallen{c.of1, c.of2} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/of %d/stream %t", name, n+1, stream), func(t *testing.T) {
					t.Parallel()
					r := startLMCache(t, lmcacheSetup{
						cut: true, senders: n + 1, receivers: 2, flags: append([]string{"--routing-prefill", "round_robin"}, c.flags...),
						// What prefill has sent although it has failed is on its way for a while.
						change: func(c *vllmsim.Config) { c.Timing.TransferPerBlock = 2e6 },
					})
					r.setFault(t, r.prefill[0], c.fault)
					r.hangUp()
					for turn := range n + 1 { // one of them meets the fault first
						d := &dialogueOf{text: turn > 0}
						if turn > 0 && want.status != 0 {
							break
						}
						r.expect(t, want, bodyOf(d.next(longQuestion(turn)), members{"stream": stream}))
					}
					r.clearFaults(t, r.prefill[0])
					r.look()
					d := &dialogueOf{}
					r.alike(t, "", bodyOf(d.next(longQuestion(7)), members{"stream": stream}))
					r.verifyUnleft(t)
				})
			}
		}
	}
}

func TestLMCache_DecodeFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    vllmsim.Fault
		of1, of2 fallen // with one receiver, and with another beside it
	}{
		"refused": {fault: vllmsim.Fault{Kind: vllmsim.FaultRefuse}, of1: fallen{status: 503, code: "decode_unavailable"}, of2: fallen{way: overPrefill}},
		"500":     {fault: vllmsim.Fault{Kind: vllmsim.FaultStatus}, of1: fallen{status: 502, code: "decode_failed"}, of2: fallen{way: overPrefill}},
		"once":    {fault: vllmsim.Fault{Kind: vllmsim.FaultStatus, Count: 1}, of1: fallen{way: overPrefill}, of2: fallen{way: overPrefill}},
		"reset":   {fault: vllmsim.Fault{Kind: vllmsim.FaultReset}, of1: fallen{status: 502, code: "decode_failed"}, of2: fallen{way: overPrefill}},
		"garbage": {fault: vllmsim.Fault{Kind: vllmsim.FaultGarbageJSON}, of1: fallen{status: 502, code: "bad_decode_answer"}, of2: fallen{status: 502, code: "bad_decode_answer"}},
	} {
		for n, want := range []fallen{c.of1, c.of2} {
			t.Run(fmt.Sprintf("%s/of %d", name, n+1), func(t *testing.T) {
				t.Parallel()
				r := startLMCache(t, lmcacheSetup{cut: true, receivers: n + 1, flags: []string{"--routing-decode", "round_robin"}})
				if err := r.decode[0].SetFault(c.fault); err != nil {
					t.Fatal(err)
				}
				r.hangUp()
				for turn := range n + 1 {
					if turn > 0 && want.status != 0 {
						break
					}
					d := &dialogueOf{text: turn > 0}
					r.expect(t, want, bodyOf(d.next(longQuestion(turn))))
				}
				r.verifyUnleft(t)
			})
		}
	}
}

// A stream that has begun with prefill's token ends in an error where decode fails, and never looks complete.
func TestLMCache_DecodeFailsUnderAStream(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]vllmsim.Fault{
		"refused":          {Kind: vllmsim.FaultRefuse},
		"500":              {Kind: vllmsim.FaultStatus},
		"silent":           {Kind: vllmsim.FaultSilent, Route: "/v1/completions"},
		"before any event": {Kind: vllmsim.FaultDieBeforeFirstEvent},
		"mid event":        {Kind: vllmsim.FaultDieMidEvent, Events: 3},
		"without done":     {Kind: vllmsim.FaultEndWithoutDone},
		"garbage":          {Kind: vllmsim.FaultGarbageJSON, Events: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startLMCache(t, lmcacheSetup{cut: true})
			r.setFault(t, r.decode[0], fault)
			r.hangUp()
			d := &dialogueOf{}
			body := bodyOf(d.next(longQuestion(1)), members{"stream": true})
			a := r.say(t, body)
			finished := strings.Contains(outcomeOf(a), `"finish":"stop"`) && a.code == ""
			if a.status == http.StatusOK && a.ends == endsDone && a.code == "" || finished && name != "without done" {
				t.Errorf("the stream ends %s with code %q as if it were complete: %.500s", a.ends, a.code, a.raw)
			}
			if rec := r.turns.await(t, a.header.Get("X-Request-Id")); rec.End.Code == "" && !finished {
				t.Errorf("the record of a turn that failed has no code: %.500s", a.raw)
			}
			r.clearFaults(t, r.decode[0])
			r.look()
			d = &dialogueOf{}
			r.alike(t, "", bodyOf(d.next(longQuestion(9)), members{"stream": true}))
			r.verifyUnleft(t)
		})
	}
}

// verifyUnleft is verify where failures of decode leave chunks that nobody reads.
func (r *lmcacheRig) verifyUnleft(t *testing.T) {
	t.Helper()
	r.stop()
	r.verify(t, anyHeld) // some may still be on their way
}

// ways asks one turn after the other and counts what becomes of them. Every answer is right, and no turn fails but with a time limit.
func (r *lmcacheRig) ways(t *testing.T, first, turns int) (over, alone, late int) {
	t.Helper()
	for n := range turns {
		d := &dialogueOf{}
		body := bodyOf(d.next(longQuestion(first + n)))
		a := r.say(t, body)
		switch {
		case a.status == http.StatusGatewayTimeout:
			late++
			continue
		case strings.HasPrefix(a.header.Get("X-KV-Path"), overPrefill):
			over++
		default:
			alone++
		}
		r.compare(t, body, a)
	}
	return over, alone, late
}

// A receiver at whose address nobody has ever listened stops its sender for good, whose /health stays 200. The legs that it does not
// answer take it out of rotation, and the other sender serves the other receiver.
func TestLMCache_SenderThatAnswersNothingIsLeftAlone(t *testing.T) {
	t.Parallel()
	setup := lmcacheSetup{cut: true, senders: 2, receivers: 1, probed: true, flags: []string{"--routing-prefill", "round_robin"}}
	r := startLMCache(t, setup)
	d := &dialogueOf{}
	r.alike(t, overPrefill, bodyOf(d.next(longQuestion(1))))
	// The address is one of another deployment: nothing of this program has to do with how the sender came to stop.
	gone := freePort(t)
	stuck := r.prefill[0]
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	body := encode(members{"model": "sim", "prompt": []int{1000, 1001}, "max_tokens": 1, "return_token_ids": true, "kv_transfer_params": members{
		"disagg_spec": members{
			"req_id": "of another", "receiver_host": "127.0.0.1", "receiver_init_port": []int{gone}, "receiver_alloc_port": []int{gone},
		},
	}})
	direct := &rig{base: stuck.URL(), client: r.client}
	if a, err := direct.post(ctx, "/v1/completions", http.Header{}, body, nil); err == nil && a.ends != endsLeft {
		t.Fatalf("the sender has answered: %s", a.raw)
	}
	r.between.silent.Store(stuck.URL(), true)
	began := time.Now()
	over, alone, late := r.ways(t, 2, 12)
	most := 1
	// After one second out of rotation the sender gets one leg on trial, two seconds after that the next one, and so on.
	for pause, after := time.Second, time.Second; after < time.Since(began); pause, after = 2*pause, after+2*pause {
		most++
	}
	if late > most || over < 12-most-1 {
		t.Errorf("of 12 turns %d were served over prefill, %d by decode alone and %d not; want %d at most that meet the sender", over, alone, late, most)
	}
	r.verifyUnleft(t)
}

// A decode instance that is started again: its senders know the old one and announce nothing more for it (measured), until they are
// started again, too. Decode serves the turns in between alone.
func TestLMCache_ReceiverStartsAgain(t *testing.T) {
	t.Parallel()
	r := startLMCache(t, lmcacheSetup{cut: true, senders: 2, receivers: 1, budget: unannounced, flags: []string{"--routing-prefill", "round_robin"}})
	if over, _, _ := r.ways(t, 1, 2); over != 2 {
		t.Errorf("%d of 2 turns were served over prefill", over)
	}
	r.decode[0].Restart()
	r.hangUp()
	r.look()
	if over, alone, late := r.ways(t, 3, 3); over != 0 || late != 0 || alone != 3 {
		t.Errorf("of 3 turns behind the restart %d were served over prefill, %d by decode alone and %d late; want decode alone", over, alone, late)
	}
	for _, sender := range r.prefill {
		sender.Restart()
	}
	r.hangUp()
	r.look()
	if over, _, _ := r.ways(t, 11, 2); over != 2 {
		t.Errorf("%d of 2 turns behind the restart of the senders were served over prefill", over)
	}
	r.verifyUnleft(t)
}
