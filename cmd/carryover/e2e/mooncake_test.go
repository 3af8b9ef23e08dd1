package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// The scenarios of Mooncake that are no file: see testdata/scenarios/mooncake.yaml.

func startMooncake(t *testing.T, c rigConfig) *rig {
	t.Helper()
	c.connector = config.ConnectorMooncake
	return startRig(t, c)
}

// turnOver sends a chat that is to be answered with a text, over both instances.
func (r *rig) turnOver(t *testing.T, ask, want string) record.Turn {
	t.Helper()
	a, rec := r.sent(t, object{"model": "sim", "messages": speech{question(ask + " SAY " + want)}, "max_tokens": 50})
	if a.status != http.StatusOK || a.content != want || !strings.HasPrefix(a.header.Get("X-KV-Path"), "prefill_decode;") {
		t.Errorf("got status %d, %q, X-KV-Path %q, want %q over both: %.300s (%v)", a.status, a.content, a.header.Get("X-KV-Path"), want, a.raw, rec.End.Err)
	}
	return rec
}

func TestMooncake_ThirtyTurnsAtOnce(t *testing.T) {
	t.Parallel()
	r := startMooncake(t, rigConfig{prefills: 2, decodes: 2})
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() { r.turnOver(t, longText(n%3+1), fmt.Sprintf("Letter %d.", n)) })
	}
	group.Wait()
	r.verify(t, pins{})
}

// Nothing is handed over from turn to turn: what turns gain is that they meet the prefix caches of the turns before.
func TestMooncake_ConversationsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	r := startMooncake(t, rigConfig{prefills: 2, decodes: 2, flags: []string{"--routing-prefill", "affinity", "--routing-decode", "affinity"}})
	for n := range 4 {
		h := r.thread(fmt.Sprint("c", n))
		first, before := h.turn(t, "ineligible_connector"), r.sum("")
		second, after := h.turn(t, "ineligible_connector"), r.sum("")
		for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
			if one, other := first.Leg(role).Instance, second.Leg(role).Instance; one != other || one == "" {
				t.Errorf("%s: turn 1 on %q, turn 2 on %q", role, one, other)
			}
		}
		if hits := after["local_hit_tokens"] - before["local_hit_tokens"]; hits < first.Path.Tokens {
			t.Errorf("turn 2 has met %d tokens in prefix caches, want those of turn 1 on both sides", hits)
		}
	}
	r.verify(t, pins{})
}

// Of a prompt that decode has begun to hold by itself only the rest is transferred.
func TestMooncake_DecodeHoldsAPrefix(t *testing.T) {
	t.Parallel()
	r := startMooncake(t, rigConfig{})
	direct := &rig{base: r.decode[0].URL(), client: r.client}
	direct.say(t, object{"model": "sim", "messages": speech{question(longText(2) + " SAY Yes.")}, "max_tokens": 50})
	before := r.sum(config.RoleDecode)
	r.turnOver(t, longText(2), "Yes.")
	after := r.sum(config.RoleDecode)
	if own, read := after["local_hit_tokens"]-before["local_hit_tokens"], after["external_tokens"]-before["external_tokens"]; own == 0 || read > 16 {
		t.Errorf("decode had %d tokens and read %d, want no whole block read", own, read)
	}
	r.verify(t, pins{})
}

// A token of the client's that would end prefill's answer must not have it throw the KV away.
func TestMooncake_AStopTokenThatComesFirst(t *testing.T) {
	t.Parallel()
	r := startMooncake(t, rigConfig{})
	ask := object{"model": "sim", "messages": speech{question(longText(1) + " SAY Yes.")}, "max_tokens": 50, "return_token_ids": true}
	first := gjson.GetBytes((&rig{base: r.decode[0].URL(), client: r.client}).say(t, ask).raw, "choices.0.token_ids.0").Int()
	for _, stops := range []object{
		{"stop_token_ids": []int64{first}}, {"stop": []string{"Y"}}, {"stop_token_ids": []int64{first}, "ignore_eos": false, "min_tokens": 0},
	} {
		maps.Copy(stops, ask)
		a, rec := r.sent(t, stops)
		finish := gjson.GetBytes(a.raw, "choices.0.finish_reason").String()
		if a.status != http.StatusOK || a.content != "" || finish != "stop" || !strings.HasPrefix(a.header.Get("X-KV-Path"), "prefill_decode;") || rec.Retries != 0 {
			t.Errorf("%v: got status %d, %q, finish %q, %d retries: %v", stops, a.status, a.content, finish, rec.Retries, rec.End.Err)
		}
	}
	if total := r.sum(""); total["reads"] != 3 {
		t.Errorf("decode has read %d hand-overs, want 3", total["reads"])
	}
	r.verify(t, pins{})
}

// Ranks behind one address have KV of their own: decode has to be told of the one that the prefill leg went to.
func TestMooncake_TwoDataParallelRanks(t *testing.T) {
	t.Parallel()
	for _, listed := range []string{"", ", ranks: 2"} {
		prefill := vllmsim.DefaultConfig()
		prefill.DPRanks = 2
		r := startRig(t, rigConfig{
			prefill: []vllmsim.Config{prefill}, decode: []vllmsim.Config{vllmsim.DefaultConfig()}, connector: config.ConnectorMooncake, entry: listed,
			flags: []string{"--routing-prefill", "round_robin"},
		})
		for n := range 6 {
			r.turnOver(t, "", fmt.Sprintf("Letter %d.", n))
		}
		seen := map[string]int{}
		for _, request := range r.prefill[0].Requests() {
			if strings.HasSuffix(request.Path, "/completions") {
				seen[request.Header.Get("X-Data-Parallel-Rank")]++
			}
		}
		if seen["0"] != 3 || seen["1"] != 3 {
			t.Errorf("legs by rank: %v, want three each", seen)
		}
		r.verify(t, pins{})
	}
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
	r := startMooncake(t, rigConfig{replace: func(d *server.Deps) { d.Connector = otherIDs{d.Connector} }})
	a, _ := r.sent(t, object{"model": "sim", "messages": speech{question(longText(1) + " SAY Yes.")}, "max_tokens": 50})
	if n := r.wrong(); n == 0 || a.content == "Yes." {
		t.Errorf("got %q and %d wrong reads, want another answer and some", a.content, n)
	}
}
