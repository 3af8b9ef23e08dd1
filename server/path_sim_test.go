package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/routing"
	"carryover/upstream/vllmsim"
)

// simulated makes a rig in front of one simulated prefill and two decode instances, with tickets proven by tokens and the policy that
// prefers holders.
func simulated(t *testing.T, cfg func(*server.Config)) (r *rig, prefill, holder, other *vllmsim.Instance) {
	t.Helper()
	var sims []*vllmsim.Instance
	var instances []upstream.Instance
	for i, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode, upstream.RoleDecode} {
		c := vllmsim.DefaultConfig()
		c.Model = "m"
		sim, err := vllmsim.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := sim.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		sims, instances = append(sims, sim), append(instances, newInstance(t, role, fmt.Sprint(role, "-", i), sim.URL()))
	}
	r = newRig(t, setup{cfg: func(c *server.Config) { byTokens(c); cfg(c) }, deps: func(d *server.Deps) {
		d.Fleet = newFleet(d.Legs.(*upstream.Client), func(c *fleet.Config) {
			c.Decode = &routing.Affinity{Otherwise: inOrder{}}
		}, instances...)
	}})
	return r, sims[0], sims[1], sims[2]
}

// A short follow-up goes straight to the decode instance that has the history in its prefix cache, without a word to prefill, pins
// nothing, and leaves the ticket for a turn that is worth a hand-over.
func TestPath_ShortFollowUpHitsThePrefixCacheOfItsHolder(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r, prefill, one, two := simulated(t, disagg(300))
		var messages []map[string]string
		conversation := "teacher" // of prefill's rendering of such requests
		say := func(question, answer string) reply {
			messages = append(messages, map[string]string{"role": "user", "content": question + " SAY " + answer})
			body, err := json.Marshal(map[string]any{"model": "m", "conversation_id": conversation, "stream": stream, "max_tokens": 500, "messages": messages})
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, map[string]string{"role": "assistant", "content": answer})
			p := r.send(string(body), "X-Request-Id", fmt.Sprint(conversation, "-", len(messages)/2))
			if !strings.Contains(strings.Join(strings.Fields(p.body), ""), "finish_reason\":\"stop\"") {
				t.Fatalf("got %d %s", p.status, p.body)
			}
			return p
		}
		long := strings.Repeat("The blocks of a turn are held until the next one reads them. ", 40)
		say(long, script(8))
		say(long, script(9))
		messages, conversation = nil, "c"
		p := say("First. "+long, script(1))
		if !strings.HasPrefix(p.path(), "prefill_decode;") {
			t.Fatalf("got path %q of the long prompt", p.path())
		}
		holder, other := one, two
		if r.log.count(`"turn":"c-1"`, `"decode":"decode-2"`) > 0 {
			holder, other = two, one
		}
		before, computed, elsewhere := holder.Stats(), prefill.Stats().Requests, other.Stats().Requests
		p = say("And now?", script(2))
		r.wantOK(p, "miss;reason=bypass")
		if !strings.HasPrefix(p.path(), "decode_only;reason=disagg_threshold;") || tokensOf(t, p) > 100 {
			t.Errorf("got path %q of the short follow-up", p.path())
		}
		after := holder.Stats()
		// Beyond the prompts of before, the simulator computes their last block, the answer, and the question.
		if hits, prompt := after.LocalHitTokens-before.LocalHitTokens, after.PromptTokens-before.PromptTokens; prompt < 500 || prompt-hits > 150 {
			t.Errorf("decode found %d of %d tokens in its prefix cache, want the history", hits, prompt)
		}
		if after.Pins != before.Pins || prefill.Stats().Requests != computed || other.Stats().Requests != elsewhere {
			t.Errorf("got %d pins after %d, %d requests of prefill after %d, %d of the other decode instance", after.Pins, before.Pins,
				prefill.Stats().Requests, computed, other.Stats().Requests)
		}
		for _, request := range holder.Requests() {
			if strings.Contains(string(request.Body), "And now?") && strings.Contains(string(request.Body), "kv_transfer_params") {
				t.Errorf("decode alone got %.2000s", request.Body)
			}
		}
		p = say(long, script(3))
		r.wantOK(p, "hit;")
		if !strings.HasPrefix(p.path(), "prefill_decode;") {
			t.Errorf("got path %q of the long follow-up", p.path())
		}
		// A question that begins a conversation of its own under the same id has none of the history.
		messages = nil
		if p = say("Find a title: "+long+long, script(4)); !strings.HasPrefix(p.path(), "prefill_decode;") {
			t.Errorf("got path %q of a long question of its own", p.path())
		}
		for _, sim := range []*vllmsim.Instance{prefill, one, two} {
			if s := sim.Stats(); s.CorruptReads != 0 || s.DoubleReads != 0 || s.Poisoned != 0 {
				t.Errorf("got %d corrupt and %d double reads, %d poisoned, want none", s.CorruptReads, s.DoubleReads, s.Poisoned)
			}
		}
	})
}
