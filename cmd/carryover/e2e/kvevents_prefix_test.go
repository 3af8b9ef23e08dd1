package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/vllmsim"
)

// Prompts go where their beginning is: not where it was and has been evicted, and also where another client has had it computed.
func TestKVEvents_PromptsGoWhereTheirBeginningIs(t *testing.T) {
	t.Parallel()
	prefill, decode := startInstances(t, 2, engineWith(`{"kv_events":{"port":-1,"replay_port":-1}}`)), startInstances(t, 1, vllmsim.DefaultConfig())
	file := naming(nil, decode, "") + "prefill:\n"
	for _, instance := range prefill {
		file += fmt.Sprintf("  - {url: %s, kv_events: %q}\n", instance.URL(), instance.Addresses().KVEvents[0])
	}
	p := startRig(t, rigConfig{found: true, admin: true, taught: true, file: file, flags: []string{"--routing-prefill", "prefix"}})
	p.prefill, p.decode = prefill, decode
	manual := "You answer from this manual. " + strings.Repeat("The blocks of a prompt stay where they were computed until others need the room. ", 80)
	system := encode(map[string]string{"role": "system", "content": manual})
	prefilledOn := func(id string) int { // a conversation that begins with the manual
		c := &chatting{rig: p, id: id, h: history{messages: speech{system}}}
		name := c.expect(t, "first_turn").Leg(upstream.RolePrefill).Instance
		return slices.IndexFunc(p.prefill, func(i *vllmsim.Instance) bool { return authority(i) == name })
	}
	live := func(i int) fleet.Live {
		return p.proxy.Fleet.Engine(upstream.RolePrefill, authority(p.prefill[i])).Live()
	}
	held := func(i int) int { return live(i).CachedBlocks } // as far as the program has heard
	first := prefilledOn("a")
	other := 1 - first
	if got := prefilledOn("b"); got != first {
		t.Fatalf("the second conversation that begins alike was sent to instance %d, want %d", got, first)
	}
	p.prefill[first].ClearBlocks()
	(&rig{base: p.prefill[other].URL(), client: p.client}).say(t, object{"model": "sim", "max_tokens": 1, "messages": speech{system, question("Of another client.")}})
	// An engine whose last reading has the other client's request is busier than the mean, and would not be picked.
	if !within(foundWithin, func() bool { return held(first) == 0 && held(other) >= len(manual)/64 && live(other).Others == 0 }) {
		t.Fatalf("%d and %d blocks are held, as far as the program has heard", held(first), held(other))
	}
	before := p.prefill[other].Stats().LocalHitTokens
	if got := prefilledOn("c"); got != other {
		t.Error("a prompt was not sent where its beginning is")
	}
	if hits := p.prefill[other].Stats().LocalHitTokens - before; hits < len(manual)/8 {
		t.Errorf("%d tokens were in the cache of the instance that it was sent to", hits)
	}
	p.verify(t, pins{})
}
