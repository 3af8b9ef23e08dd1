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

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// fifty makes two seconds of an engine 40 ms.
func fifty(c *vllmsim.Config) { c.TimeScale = 50 }

// Either engine may have its leg two seconds before the other.
func TestMooncake_BothLegsAtOnceOrOneLater(t *testing.T) {
	later := vllmsim.Fault{Kind: vllmsim.FaultSlowHeaders, Delay: 2 * time.Second}
	for name, slow := range map[string]func(*rig) *vllmsim.Instance{
		"together":     func(*rig) *vllmsim.Instance { return nil },
		"decode later": func(o *rig) *vllmsim.Instance { return o.decode[0] },
		"decode first": func(o *rig) *vllmsim.Instance { return o.prefill[0] },
	} {
		t.Run(name, func(t *testing.T) {
			kinds(t, func(t *testing.T, ask func(string) map[string]any) {
				o := startMooncake(t, pushing{change: fifty})
				if instance := slow(o); instance != nil {
					if err := instance.SetFault(later); err != nil {
						t.Fatal(err)
					}
				}
				const want = "The harbour keeps every letter."
				o.turnOver(t, ask(longText(1)+" SAY "+want), want)
				total := o.sum(t, config.RoleDecode)
				if total["computed_tokens"] != 1 || total["loads"] != 1 {
					t.Errorf("decode computed %d prompt tokens after %d loads, want the last one only", total["computed_tokens"], total["loads"])
				}
				o.verify(t, pins{})
			})
		})
	}
}

func TestMooncake_ThirtyTurnsAtOnce(t *testing.T) {
	t.Parallel()
	o := startMooncake(t, pushing{prefills: 2, decodes: 2})
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() {
			want := fmt.Sprintf("Letter %d.", n)
			o.turnOver(t, map[string]any{
				"model": "sim", "messages": []json.RawMessage{question(longText(n%3+1) + " SAY " + want)}, "max_tokens": 50, "stream": n%2 == 0,
			}, want)
		})
	}
	group.Wait()
	o.verify(t, pins{})
}

// Nothing is handed over from turn to turn: what turns gain is that they meet the prefix caches of the turns before.
func TestMooncake_ConversationsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			t.Parallel()
			o := startMooncake(t, pushing{
				prefills: 2, decodes: 2, flags: []string{"--routing-prefill", "affinity", "--routing-decode", "affinity"},
			})
			for n := range 4 {
				d := foretold{rig: o, id: fmt.Sprint("c", n), stream: stream}
				a, first := d.say(t, longText(2))
				if got := a.reuse(); got != "miss;reason=ineligible_connector" {
					t.Errorf("X-KV-Reuse: got %q", got)
				}
				before := o.sum(t, "")
				_, second := d.say(t, "And then?")
				after := o.sum(t, "")
				for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
					if one, other := sentTo(first, role), sentTo(second, role); one != other || one == "" {
						t.Errorf("%s: turn 1 on %q, turn 2 on %q", role, one, other)
					}
				}
				if hits := after["local_hit_tokens"] - before["local_hit_tokens"]; hits < first.Path.Tokens {
					t.Errorf("turn 2 has met %d tokens in prefix caches, want those of turn 1 on both sides", hits)
				}
			}
			o.verify(t, pins{})
		})
	}
}

// Of a prompt that decode has begun to hold by itself only the rest is transferred.
func TestMooncake_DecodeHoldsAPrefix(t *testing.T) {
	t.Parallel()
	o := startMooncake(t, pushing{})
	const want = "Yes."
	ask := map[string]any{"model": "sim", "messages": []json.RawMessage{question(longText(2) + " SAY " + want)}, "max_tokens": 50}
	if status := o.askEngine(t, o.decode[0], ask).status; status != http.StatusOK {
		t.Fatalf("decode answered %d", status)
	}
	before := o.sum(t, config.RoleDecode)
	o.turnOver(t, ask, want)
	after := o.sum(t, config.RoleDecode)
	if own, read := after["local_hit_tokens"]-before["local_hit_tokens"], after["external_tokens"]-before["external_tokens"]; own == 0 || read > 16 {
		t.Errorf("decode had %d tokens and read %d, want no whole block read", own, read)
	}
	o.verify(t, pins{})
}

// askEngine sends a request to an engine itself.
func (o *rig) askEngine(t *testing.T, instance *vllmsim.Instance, members map[string]any) *answered {
	t.Helper()
	direct := rig{base: instance.URL(), client: o.client}
	a, err := direct.post(t.Context(), "/v1/chat/completions", http.Header{}, encode(members), unwatched)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A token of the client's that would end prefill's answer must not have it throw the KV away.
func TestMooncake_AStopTokenThatComesFirst(t *testing.T) {
	t.Parallel()
	o := startMooncake(t, pushing{})
	ask := map[string]any{"model": "sim", "messages": []json.RawMessage{question(longText(1) + " SAY Yes.")}, "max_tokens": 50, "return_token_ids": true}
	first := gjson.GetBytes(o.askEngine(t, o.decode[0], ask).raw, "choices.0.token_ids.0").Int()
	for _, members := range []map[string]any{
		{"stop_token_ids": []int64{first}}, {"stop": []string{"Y"}}, {"stop_token_ids": []int64{first}, "ignore_eos": false, "min_tokens": 0},
	} {
		for name, value := range ask {
			members[name] = value
		}
		a, rec := o.sent(t, members)
		finish := gjson.GetBytes(a.raw, "choices.0.finish_reason").String()
		if a.status != http.StatusOK || a.content != "" || finish != "stop" || !strings.HasPrefix(a.header.Get("X-KV-Path"), "prefill_decode;") || rec.Retries != 0 {
			t.Errorf("%v: got status %d, %q, finish %q, %d retries: %v", members, a.status, a.content, finish, rec.Retries, rec.End.Err)
		}
	}
	if total := o.sum(t, ""); total["reads"] != 3 {
		t.Errorf("decode has read %d hand-overs, want 3", total["reads"])
	}
	o.verify(t, pins{})
}

// Ranks behind one address have KV of their own: decode has to be told of the one that the prefill leg went to.
func TestMooncake_TwoDataParallelRanks(t *testing.T) {
	t.Parallel()
	for _, listed := range []bool{false, true} {
		t.Run(fmt.Sprintf("listed=%t", listed), func(t *testing.T) {
			t.Parallel()
			o := startMooncake(t, pushing{ranks: 2, listed: listed, flags: []string{"--routing-prefill", "round_robin"}})
			for n := range 6 {
				want := fmt.Sprintf("Letter %d.", n)
				o.turnOver(t, map[string]any{"model": "sim", "messages": []json.RawMessage{question("SAY " + want)}, "max_tokens": 50}, want)
			}
			seen := map[string]int{}
			for _, request := range o.prefill[0].Requests() {
				if strings.HasSuffix(request.Path, "/completions") {
					seen[request.Header.Get("X-Data-Parallel-Rank")]++
				}
			}
			if seen["0"] != 3 || seen["1"] != 3 {
				t.Errorf("legs by rank: %v, want three each", seen)
			}
			o.verify(t, pins{})
		})
	}
}

// What no hand-over serves goes to decode without params.
func TestMooncake_DecodeAloneHasNoParams(t *testing.T) {
	t.Parallel()
	o := startMooncake(t, pushing{})
	for _, members := range []map[string]any{{"n": 2}, {"echo": true}, {"new_member": 1}} {
		members["model"], members["messages"], members["max_tokens"] = "sim", []json.RawMessage{question("SAY Yes.")}, 5
		a, _ := o.sent(t, members)
		if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("X-KV-Path"), "decode_only;") {
			t.Errorf("%v: got status %d, X-KV-Path %q", members, a.status, a.header.Get("X-KV-Path"))
		}
	}
	for _, body := range legs(o.decode[0]) {
		if gjson.GetBytes(body, "kv_transfer_params").Exists() {
			t.Errorf("decode got %s", body)
		}
	}
	o.verify(t, pins{})
}

// otherIDs has prefill compute another prompt than decode.
type otherIDs struct{ server.Connector }

// Plan implements server.Connector.
func (c otherIDs) Plan(ctx context.Context, t upstream.Transfer) (upstream.Plan, error) {
	plan, err := c.Connector.Plan(ctx, t)
	if err != nil {
		return plan, err
	}
	plan.Handover = func(upstream.PrefillAnswer) (*upstream.Handover, error) { return plan.Together, nil } // without its check
	for i, m := range plan.Prefill.Members {
		if m.Name == "kv_transfer_params" {
			plan.Prefill.Members[i].Value = []byte(strings.Replace(string(m.Value), `"prompt_token_ids":[`, `"prompt_token_ids":[300,`, 1))
		}
	}
	return plan, nil
}

func TestMutant_MooncakeLegsOfOtherIDsAreNoticed(t *testing.T) {
	t.Parallel()
	o := startMooncake(t, pushing{replace: func(d *server.Deps) { d.Connector = otherIDs{d.Connector} }})
	a, _ := o.sent(t, map[string]any{"model": "sim", "messages": []json.RawMessage{question(longText(1) + " SAY Yes.")}, "max_tokens": 50})
	if n := o.wrong(t); n == 0 || a.content == "Yes." {
		t.Errorf("got %q and %d wrong reads, want another answer and some", a.content, n)
	}
}
