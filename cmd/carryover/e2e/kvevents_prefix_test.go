package e2e

import (
	"fmt"
	"strings"
	"testing"

	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// manual is a long beginning of prompts.
func manual() string {
	return "You answer from this manual. " + strings.Repeat("The blocks of a prompt stay where they were computed until others need the room. ", 80)
}

// from returns a conversation that begins with the manual.
func (r *rig) from(id string) *thread {
	h := r.thread(id)
	h.messages = append(h.messages, encode(map[string]string{"role": "system", "content": manual()}))
	return h
}

// prefilledOn returns which prefill instance a turn was sent to.
func (r *rig) prefilledOn(t *testing.T, rec *record.Turn) int {
	t.Helper()
	name := rec.Leg(upstream.RolePrefill).Instance
	for i, instance := range r.prefill {
		if name == authority(instance) {
			return i
		}
	}
	t.Fatalf("%q is no prefill instance", name)
	return 0
}

// held is how many blocks prefill instance i holds, as far as the program has heard.
func (r *rig) heldBlocks(i int) int {
	return r.proxy.Fleet.Engine(upstream.RolePrefill, authority(r.prefill[i])).Live().CachedBlocks
}

// Prompts go where their beginning is: not where it was and has been evicted, and also where another client has had it computed.
func TestKVEvents_PromptsGoWhereTheirBeginningIs(t *testing.T) {
	t.Parallel()
	publishing := vllmsim.DefaultConfig()
	publishing.KVEvents = vllmsim.KVEventsConfig{Port: -1, ReplayPort: -1}
	prefill, decode := startInstances(t, 2, publishing), startInstances(t, 1, vllmsim.DefaultConfig())
	file := naming(nil, decode, "") + "prefill:\n"
	for _, instance := range prefill {
		file += fmt.Sprintf("  - {url: %s, kv_events: %q}\n", instance.URL(), instance.Addresses().KVEvents[0])
	}
	p := startRig(t, rigConfig{found: true, admin: true, taught: true, file: file, flags: []string{"--routing-prefill", "prefix"}})
	p.prefill, p.decode = prefill, decode
	first := p.prefilledOn(t, p.from("a").turn(t, "first_turn"))
	other := 1 - first
	if got := p.prefilledOn(t, p.from("b").turn(t, "first_turn")); got != first {
		t.Fatalf("the second conversation that begins alike was sent to instance %d, want %d", got, first)
	}
	p.prefill[first].ClearBlocks()
	(&rig{base: p.prefill[other].URL(), client: p.client}).say(t, object{"model": "sim", "max_tokens": 1, "messages": []any{
		map[string]string{"role": "system", "content": manual()}, map[string]string{"role": "user", "content": "Of another client."},
	}})
	if !within(foundWithin, func() bool { return p.heldBlocks(first) == 0 && p.heldBlocks(other) >= len(manual())/64 }) {
		t.Fatalf("%d and %d blocks are held, as far as the program has heard", p.heldBlocks(first), p.heldBlocks(other))
	}
	before := p.prefill[other].Stats().LocalHitTokens
	if got := p.prefilledOn(t, p.from("c").turn(t, "first_turn")); got != other {
		t.Error("a prompt was not sent where its beginning is")
	}
	if hits := p.prefill[other].Stats().LocalHitTokens - before; hits < len(manual())/8 {
		t.Errorf("%d tokens were in the cache of the instance that it was sent to", hits)
	}
	p.verify(t, pins{})
}
