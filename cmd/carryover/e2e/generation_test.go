package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/vllmsim"
)

// startWaking runs the program in front of one instance of each role.
func startWaking(t *testing.T, replace func(*server.Deps), flags ...string) *rig {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	return startRig(t, rigConfig{
		cfg: cfg, replace: replace, flags: flags, taught: true,
	})
}

// nothingStale asserts that every read was by the registration of its time.
func (r *rig) nothingStale(t *testing.T) {
	t.Helper()
	if n := r.sum(t, "")["stale_reads"]; n != 0 {
		t.Errorf("%d stale reads, want none", n)
	}
}

// Decode sleeps and wakes while a conversation has a ticket. From the first answer on that has the higher generation, those from before
// are misses, and those from after are hits, which prefill reads by the new registration.
func TestGeneration_TicketsFromBeforeASleepAreNotUsed(t *testing.T) {
	t.Parallel()
	r := startWaking(t, nil)
	h := r.thread("a")
	h.turn(t, "first_turn")
	h.turn(t, hit)
	r.decode[0].SleepAndWake()
	r.thread("b").turn(t, "first_turn") // tells the generation
	h.turn(t, "instance_gone")
	h.turn(t, hit)
	h.turn(t, hit)
	r.nothingStale(t)
	r.verify(t, pins{})
}

// An answer tells the generation that leaves no ticket itself.
func TestGeneration_ToldByAnAnswerWithoutATicket(t *testing.T) {
	t.Parallel()
	r := startWaking(t, nil)
	a := r.thread("a")
	a.turn(t, "first_turn")
	a.turn(t, hit)
	r.decode[0].SleepAndWake()
	body := encode(map[string]any{"model": "sim", "messages": []json.RawMessage{question("SAY something else.")}, "conversation_id": "last"})
	header := http.Header{"X-Request-Id": {"last"}, "X-Conversation-Final": {"true"}}
	if _, err := r.post(t.Context(), "/v1/chat/completions", header, body, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.turns.await(t, "last").Stored; got != "final" {
		t.Fatalf("stored %q, want none for a final turn", got)
	}
	a.turn(t, "instance_gone")
	r.nothingStale(t)
	r.verify(t, pins{unused: 1})
}

// A decode engine with a configured id that has slept counts from one again when it is restarted. Prefill has a higher number of that id and
// reads by the registration that ended with the process: no ticket of such an engine is offered.
func TestGeneration_RestartedUnderTheSameIDAfterASleep(t *testing.T) {
	t.Parallel()
	cfg := vllmsim.DefaultConfig()
	decode := cfg
	decode.EngineID = "decode-0"
	r := startRig(t, rigConfig{prefill: []vllmsim.Config{cfg}, decode: []vllmsim.Config{decode}, flags: []string{"--hand-back", "off"}, taught: true})
	a := r.thread("a")
	a.turn(t, "first_turn")
	a.turn(t, hit)
	r.decode[0].SleepAndWake()
	r.thread("b").turn(t, "first_turn") // tells the generation
	a.turn(t, "instance_gone")
	a.turn(t, hit) // tells it to prefill
	r.decode[0].Restart()
	a.turn(t, "instance_gone")
	for range 2 {
		a.turn(t, "instance_gone")
	}
	r.nothingStale(t)
	if n := r.wrong(t); n != 0 {
		t.Errorf("%d reads are wrong", n)
	}
}

// An engine that any reading finds asleep has lost what it held, whatever its answers tell.
func TestGeneration_SeenAsleep(t *testing.T) {
	t.Parallel()
	var f *fleet.Fleet
	r := startWaking(t, func(deps *server.Deps) { f = deps.Fleet })
	a := r.thread("a")
	a.turn(t, "first_turn")
	a.turn(t, hit)
	was := f.Engines(upstream.RoleDecode)[0].Last()
	r.decode[0].Sleep()
	was.Engine().Refresh(t.Context())
	r.decode[0].Resume()
	if !was.Ended() {
		t.Error("an incarnation outlives its sleep")
	}
	a.turn(t, "instance_gone")
	a.turn(t, hit)
	r.verify(t, pins{unused: -1}) // the ticket from before is in the store, and pins nothing
}

// Prefill's generation reaches decode with each hand-over.
func TestGeneration_PrefillSleeps(t *testing.T) {
	t.Parallel()
	r := startWaking(t, nil)
	h := r.thread("a")
	h.turn(t, "first_turn")
	h.turn(t, hit)
	r.prefill[0].SleepAndWake()
	h.turn(t, hit)
	r.thread("b").turn(t, "first_turn")
	r.nothingStale(t)
	r.verify(t, pins{})
}

// A ticket that waits for its hand-back when decode sleeps is not handed back: prefill's cache is others' too.
func TestGeneration_NothingFromBeforeIsHandedBack(t *testing.T) {
	t.Parallel()
	const idle = 4 * time.Second
	for told := false; !told; { // again where the machine was too slow for b to tell the generation before a's hand-back is due
		r := startWaking(t, nil, "--hand-back", "idle", "--hand-back-after", idle.String(), "--release", "on")
		a, b := r.thread("a"), r.thread("b")
		a.turn(t, "first_turn")
		last := time.Now()
		a.turn(t, whatever)
		r.decode[0].SleepAndWake()
		b.turn(t, "first_turn")
		if told = time.Since(last) < idle; told {
			r.handsBackOf(t, a, b)
		}
		r.stop()
	}
}

// handsBackOf waits until the ticket of b is handed back, which is due after that of a, and continues both.
func (r *rig) handsBackOf(t *testing.T, a, b *thread) {
	t.Helper()
	if !testrig.Eventually(func() bool { return r.sum(t, config.RolePrefill)["hand_backs"] == 1 }) {
		t.Errorf("%d hand-backs, want that of b", r.sum(t, config.RolePrefill)["hand_backs"])
	}
	a.turn(t, whatever)
	b.turn(t, whatever)
	r.nothingStale(t)
	if n := r.wrong(t); n != 0 {
		t.Errorf("%d reads are wrong", n)
	}
}

// forgetful legs have no generation, as a proxy would send them that lets known members pass only.
type forgetful struct{ server.Legs }

func (f forgetful) without(leg upstream.Leg) upstream.Leg {
	var body, params map[string]json.RawMessage
	if json.Unmarshal(leg.Body.Bytes(), &body) != nil || json.Unmarshal(body["kv_transfer_params"], &params) != nil {
		return leg
	}
	delete(params, "remote_registration_generation")
	body["kv_transfer_params"] = encode(params)
	leg.Body = [][]byte{encode(body)}
	return leg
}

// Prefill implements server.Legs.
func (f forgetful) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	return f.Legs.Prefill(ctx, f.without(leg))
}

func TestMutant_WithoutTheGenerationTheOracleSeesIt(t *testing.T) {
	r := startWaking(t, func(deps *server.Deps) { deps.Legs = forgetful{deps.Legs} })
	var messages []json.RawMessage
	for n := range 5 {
		messages = append(messages, question("SAY "+longText(n)+"."))
		messages = append(messages, r.ask(t, messages...).assistant())
		if n == 1 {
			r.decode[0].SleepAndWake()
			r.thread("other").turn(t, "first_turn") // tells the generation, so that the ticket from before is not used
		}
	}
	if r.sum(t, "")["expired_reads"] != 0 {
		t.Error("the ticket from before the sleep was used")
	}
	if r.sum(t, "")["stale_reads"] == 0 || r.wrong(t) == 0 {
		t.Error("prefill read by an older registration, and no instance noticed")
	}
}
