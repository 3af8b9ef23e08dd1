package vllmsim

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"carryover/upstream/vllmsim/wire"
)

func TestPool_ExhaustedByPinsServesAgainWhenTheyExpire(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.Blocks, c.TimeScale = 16, 500 })
	for _, salt := range []string{"a", "b", "c", "d", "e"} {
		// Five prompts of about six blocks each do not fit into sixteen: the later ones wait for a lease to end.
		prefillWith(t, i, []any{user(longText)}, prefillTemplate(), salt).answers(t, http.StatusOK)
	}
	if s := i.Stats(); s.LeasesExpired == 0 {
		t.Error("no lease expired, so nothing waited")
	}
}

func TestPool_PreemptedRunSaysTheSame(t *testing.T) {
	ask := with(asking(longText), object{"max_tokens": 80, "ignore_eos": true})
	want := post(t, startInstance(t, nil), wire.PathChat, ask).text()
	tight := startInstance(t, func(c *Config) { c.Blocks = 14 })
	prefillWith(t, tight, []any{user(longText)}, prefillTemplate(), "pinned")
	said := make(chan string, 1) // room for the answer of the one goroutine
	go func() { said <- chat(t, tight, ask).text() }()
	becomes(t, tight, counts{"Preemptions": 1})
	tight.Advance(31 * time.Second) // ends the lease
	got := <-said
	if got != want {
		t.Errorf("under memory pressure %q, want %q", got, want)
	}
	// The next turn finds the recomputed blocks in the prefix cache.
	chat(t, tight, object{"model": "sim", "messages": []any{user(longText), assistant(got), user("And then?")}, "max_tokens": 1})
	if s := tight.Stats(); s.LocalHitTokens == 0 {
		t.Error("the next turn found nothing")
	}
	assertClean(t, tight)
}

func TestPool_EvictedPrefixIsNotHit(t *testing.T) {
	roomy, tight := startInstance(t, nil), startInstance(t, func(c *Config) { c.Blocks = 12 })
	for n := range 12 {
		ask := with(asking(fmt.Sprint(n%4, longText)), object{"max_tokens": 2 + n})
		if got, want := chat(t, tight, ask).text(), chat(t, roomy, ask).text(); got != want {
			t.Errorf("request %d: %q, want %q", n, got, want)
		}
	}
	assertClean(t, tight, roomy)
	if s := tight.Stats(); s.LocalHitTokens != 0 && s.LocalHitTokens >= roomy.Stats().LocalHitTokens {
		t.Errorf("the small pool hit %d tokens, the large one %d; want fewer", s.LocalHitTokens, roomy.Stats().LocalHitTokens)
	}
}

// A reader waits longer than a lease twice, for its turn and then for blocks: 2 s of the wall clock each, so that a busy machine may hold heartbeats up.
func TestPool_ReaderThatWaitsKeepsTheLease(t *testing.T) {
	t.Parallel()
	p := startInstance(t, func(c *Config) { c.TimeScale = 20 })
	d := startInstance(t, func(c *Config) { c.Blocks, c.TimeScale, c.KVTTL = 12, 50, 200*time.Second })
	for _, text := range []string{"First. ", "Second. "} { // both pins together leave no room until they are over
		chat(t, d, with(asking(text+longText), object{"max_tokens": 1, "kv_transfer_params": object{"x": 1}}))
	}
	must(t, d.Switch(Switches{Timing: &Timing{Overhead: 100 * time.Second}}))
	turn(t, p, d, []any{user(longText)}, nil, object{"max_tokens": 2})
	if s := p.Stats(); s.Heartbeats < 5 || s.LeasesExpired != 0 || s.Reads != 1 {
		t.Errorf("heartbeats %d, leases expired %d, reads %d; want at least 5, 0, 1", s.Heartbeats, s.LeasesExpired, s.Reads)
	}
	assertClean(t, p, d)
}

// The engine caches full blocks as it fills them, generated ones too, so that an answer that a stop string or its client has ended
// is found by the next turn as well (vllm/v1/core/kv_cache_manager.py, allocate_slots: cache_blocks).
func TestPool_AnswersThatWereAbortedAreCached(t *testing.T) {
	i := startInstance(t, nil)
	first := chat(t, i, with(asking("SAY "+longText+" STOP and more"), object{"max_tokens": 400, "stop": []string{" STOP"}}))
	if first.choice()["stop_reason"] != " STOP" {
		t.Fatalf("got %v, want an answer that the stop string ends", first.choice())
	}
	before := i.Stats()
	expect(t, i, counts{"Aborts": 1})
	messages := []any{user("SAY " + longText + " STOP and more"), assistant(first.text()), user("And then?")}
	chat(t, i, object{"model": "sim", "messages": messages, "max_tokens": 1})
	after := i.Stats()
	prompt, hits := after.PromptTokens-before.PromptTokens, after.LocalHitTokens-before.LocalHitTokens
	if prompt-hits > 48 {
		t.Errorf("the next turn found %d of %d tokens, want the answer too", hits, prompt)
	}
	assertClean(t, i)
}

func TestStepAhead_CountsTheLastToken(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		p, d := startPair(t, func(c *Config) { c.StepAhead = ahead })
		messages := []any{user(longText)}
		_, reply := turn(t, p, d, messages, nil, nil)
		held := int(reply.params()["remote_num_tokens"].(float64))
		all := len(ids(reply.body["prompt_token_ids"])) + len(ids(reply.choice()["token_ids"]))
		want := all - 1
		if ahead && want%16 != 0 { // the last block has room
			want = all
		}
		if held != want {
			t.Errorf("step ahead %v: remote_num_tokens %d of %d, want %d", ahead, held, all, want)
		}
		turn(t, p, d, then(messages, reply), reply.params(), nil)
		assertClean(t, p, d)
	}
}
