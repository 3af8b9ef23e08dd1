package vllmsim

import (
	"bufio"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/upstream/vllmsim/wire"
)

// keptTurn runs a turn and returns decode's ticket, and the ids that it covers.
func keptTurn(t *testing.T, p, d *Instance, extra object) (covered []int32, ticket object) {
	t.Helper()
	// The answer is longer than the recompute threshold.
	prefill, reply := turn(t, p, d, []any{user(longText)}, nil, with(object{"max_tokens": 100, "ignore_eos": true}, extra))
	covered = slices.Concat(ids(prefill.body["prompt_token_ids"]), ids(reply.choice()["token_ids"]))
	return covered[:int(reply.params()["remote_num_tokens"].(float64))], reply.params()
}

// handBackBody is the leg in the form that was measured.
func handBackBody(prompt []int32, ticket, extra object) object {
	return with(object{
		"model": "sim", "prompt": prompt, "stream": true, "max_tokens": 64, "ignore_eos": true, "temperature": 0, "return_token_ids": true,
		"stream_options": object{"include_usage": true, "continuous_usage_stats": true}, "kv_transfer_params": ticket,
	}, extra)
}

// firstEvent sends a streaming request, drops its connection behind the first event, and returns that.
func firstEvent(t *testing.T, i *Instance, body object) (event object) {
	t.Helper()
	resp, err := client().Do(newRequest(t, i, wire.PathCompletions, body))
	must(t, err)
	defer func() { _ = resp.Body.Close() }() // that drops it
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(line, "data: ") {
		t.Fatalf("status %d, first line %q (%v)", resp.StatusCode, line, err)
	}
	must(t, json.Unmarshal([]byte(line[len("data: "):]), &event))
	return event
}

// idle waits until no request is in any of the engines.
func idleEngines(t *testing.T, instances ...*Instance) {
	t.Helper()
	for _, i := range instances {
		becomes(t, i, counts{"Running": 0})
	}
}

func wantHandBacks(t *testing.T, p *Instance, legs, leased, uneven, salts int) {
	t.Helper()
	expect(t, p, counts{"HandBacks": legs, "LeasedHandBacks": leased, "UnevenHandBacks": uneven, "OtherSalts": salts})
}

func TestHandBack_DroppedAtTheFirstEvent(t *testing.T) {
	for _, details := range []bool{false, true} {
		p, d := startPair(t, func(c *Config) { c.PromptTokensDetails = details })
		covered, ticket := keptTurn(t, p, d, object{"cache_salt": "tenant"})
		if used := gauges(t, d, 0, "kv_cache_usage_perc")["kv_cache_usage_perc"]; used == "0.0" {
			t.Error("decode holds nothing before the hand-back")
		}
		event := firstEvent(t, p, handBackBody(covered, ticket, object{"cache_salt": "tenant"}))
		choice, used := event["choices"].([]any)[0].(object), event["usage"].(object)
		if !slices.Equal(ids(choice["prompt_token_ids"]), covered) || len(ids(choice["token_ids"])) != 1 {
			t.Errorf("the first event is %v, want the prompt's ids and one of the answer", event)
		}
		// Never a cached count, whatever --enable-prompt-tokens-details says: only the last chunk has one (completion/serving.py, 0.32).
		want := object{"prompt_tokens": float64(len(covered)), "completion_tokens": 1.0, "total_tokens": float64(len(covered) + 1)}
		if !reflect.DeepEqual(used, want) {
			t.Errorf("usage of the first event is %v, want %v", used, want)
		}
		idleEngines(t, p, d)
		expect(t, p, counts{"Pins": 0, "FreeBlocks": p.config().Blocks, "Aborts": 1})
		expect(t, d, counts{"Pins": 0, "FreeBlocks": d.config().Blocks, "Reads": 1, "Releases": 0})
		for _, i := range []*Instance{p, d} {
			if used := gauges(t, i, 0, "kv_cache_usage_perc")["kv_cache_usage_perc"]; used != "0.0" {
				t.Errorf("KV usage is %s afterwards, want 0.0", used)
			}
		}
		wantHandBacks(t, p, 1, 0, 0, 0)
		assertClean(t, p, d)
	}
}

// With the first token the request is finished, and what finishes takes a lease: nobody asks whether its client is there.
func TestHandBack_ThatEndsByItselfTakesALease(t *testing.T) {
	for name, c := range map[string]struct {
		extra object
		drop  bool
	}{
		"whole":              {object{"max_tokens": 1, "stream": false, "stream_options": nil}, false},
		"one token, dropped": {object{"max_tokens": 1}, true},
		"all tokens":         {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, d := startPair(t, nil)
			covered, ticket := keptTurn(t, p, d, nil)
			body := handBackBody(covered, ticket, c.extra)
			if c.drop {
				firstEvent(t, p, body)
			} else if got := post(t, p, wire.PathCompletions, body); got.status != http.StatusOK {
				t.Fatalf("answered %d: %s", got.status, got.raw)
			} else if said := strings.Count(string(got.raw), `"prompt_token_ids":[`); said != 1 {
				t.Errorf("the prompt's ids are told %d times, want once", said)
			}
			idleEngines(t, p, d)
			if ps, ds := p.Stats(), d.Stats(); ps.LeasedPins != 1 || ps.PinnedTokens < len(covered) || ds.Pins != 0 {
				t.Errorf("prefill has %d leased pins of %d tokens, decode %d; want 1 of all, and none", ps.LeasedPins, ps.PinnedTokens, ds.Pins)
			}
			p.Advance(31 * time.Second)
			expect(t, p, counts{"Pins": 0, "LeasesExpired": 1})
			wantHandBacks(t, p, 1, 1, 0, 0)
			assertClean(t, p, d)
		})
	}
}

// A leg for whose tokens there is no room is refused, and nobody tells decode: #41269 does so for decode legs alone.
func TestHandBack_RefusedLeavesDecodeItsPin(t *testing.T) {
	p, d := startPair(t, func(c *Config) { c.MaxModelLen = 240 })
	covered, ticket := keptTurn(t, p, d, nil)
	if room := 240 - len(covered); room < 1 || room >= 64 {
		t.Fatalf("there is room for %d tokens, want fewer than 64", room)
	}
	post(t, p, wire.PathCompletions, handBackBody(covered, ticket, nil)).answers(t, http.StatusBadRequest)
	expect(t, d, counts{"Pins": 1})
	wantHandBacks(t, p, 0, 0, 0, 0)
}
