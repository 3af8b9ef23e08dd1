package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/vllmsim"
)

// pinning is a server under Run in front of one simulated engine of each role; decode's KV cache is small.
type pinning struct {
	*running
	prefill, decode *vllmsim.Instance
	said            map[string][]map[string]string // by conversation
}

const (
	smallCache  = 128 * 16 // tokens
	pinnedShare = 0.5
	budget      = int(smallCache * pinnedShare)
)

func newPinning(t *testing.T, change func(*server.Config)) *pinning {
	t.Helper()
	p := &pinning{said: map[string][]map[string]string{}}
	var instances []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		c := vllmsim.DefaultConfig()
		c.Model, c.RecomputeThreshold = "m", 1 // prefill reads what it has not got, however little
		if role == upstream.RoleDecode {
			c.Blocks = smallCache / 16
		}
		sim, err := vllmsim.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if s := sim.Stats(); s.CorruptReads+s.DoubleReads+s.Poisoned+s.ExpiredReads+s.UnknownReads+s.Deaths+s.LateNotifications != 0 {
				t.Errorf("%s: got %+v, want no wrong read and no second release", role, s)
			}
			if err := sim.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		instances = append(instances, newInstance(t, role, role.String(), sim.URL()))
		p.prefill, p.decode = p.decode, sim
	}
	p.running = run(t, setup{cfg: func(c *server.Config) {
		releasing(c)
		c.PinnedShare = pinnedShare
		if change != nil {
			change(c)
		}
	}, deps: func(d *server.Deps) { d.Fleet = newFleet(d.Legs.(*upstream.Client), nil, instances...) }})
	return p
}

// decoder is what the server knows of decode.
func (p *pinning) decoder() *fleet.Engine { return p.deps.Fleet.Engine(upstream.RoleDecode, "decode") }

// turn sends the next turn of a conversation.
func (p *pinning) turn(conversation string) reply {
	p.t.Helper()
	got := p.next(conversation)
	p.wantWhole(conversation, got)
	return got
}

// next sends the next turn of a conversation, on any goroutine.
func (p *pinning) next(conversation string) reply {
	messages, n := p.said[conversation], len(p.said[conversation])/2+1
	answer := fmt.Sprintf("Answer %d of %s. %s", n, conversation, strings.TrimSpace(strings.Repeat("The blocks of a turn are held. ", 3)))
	messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprintf(
		"Question %d of %s. %s SAY %s", n, conversation, strings.Repeat("The next one reads them. ", 10), answer)})
	body, err := json.Marshal(map[string]any{"model": "m", "conversation_id": conversation, "max_tokens": 500, "messages": messages})
	if err != nil {
		return reply{err: err}
	}
	p.said[conversation] = append(messages, map[string]string{"role": "assistant", "content": answer})
	return p.send(string(body))
}

func (p *pinning) wantWhole(conversation string, got reply) {
	p.t.Helper()
	if got.status != 200 || !strings.Contains(got.body, `"finish_reason":"stop"`) {
		p.t.Fatalf("%s: got %d %v %.300s", conversation, got.status, got.err, got.body)
	}
}

// settle waits until decode pins no more than its share.
func (p *pinning) settle() {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; p.decode.Stats().PinnedBlocks*16 > budget; <-tick.C {
		if time.Now().After(deadline) {
			s := p.decode.Stats()
			p.t.Fatalf("decode pins %d tokens in %d blocks for %d tickets, want %d at most", s.PinnedTokens, s.PinnedBlocks, s.Pins, budget)
		}
	}
}

// Sixty conversations, where seven fill the share and fifteen the whole cache: none waits, the newest are reused, and of the oldest
// the turn says why not.
func TestPinned_OldestAreReleasedOverBudget(t *testing.T) {
	p := newPinning(t, nil)
	const conversations = 60
	most, one, began := 0, 0, time.Now()
	for i := range conversations {
		p.wantOK(p.turn(fmt.Sprint("c", i)), "miss;reason=first_turn")
		pinned := p.decode.Stats().PinnedBlocks * 16
		if i == 0 {
			one = pinned
		}
		most = max(most, pinned)
		p.settle()
	}
	if took := time.Since(began); took > patience {
		t.Errorf("it took %s: what exceeds the share is not noticed when it comes", took)
	}
	if most > budget+2*one {
		t.Errorf("decode pinned %d tokens, want the share of %d and a turn of %d at most", most, budget, one)
	}
	if fits := conversations * one; fits < 3*smallCache {
		t.Fatalf("all turns together take %d tokens: the test shows nothing", fits)
	}
	s := p.decode.Stats()
	if kept := s.PinnedBlocks * 16; kept < budget-2*one {
		t.Errorf("decode pins %d tokens, want nearly its share of %d: no more is released than must be", kept, budget)
	}
	p.until(func() bool { return p.server.Pinned(p.decoder()) == p.decode.Stats().PinnedBlocks*16 })
	for i := range 3 {
		p.wantOK(p.turn(fmt.Sprint("c", conversations-1-i)), "hit;")
		p.settle()
	}
	p.wantOK(p.turn("c0"), "prefix;tokens=112;reason=released_over_budget")
	p.settle()
	p.wantOK(p.turn("c0"), "hit;")
	p.settle()
	p.wantAllPinsKnown()
}

// wantAllPinsKnown waits until decode pins what the ledger knows, and nothing else.
func (p *pinning) wantAllPinsKnown() {
	p.t.Helper()
	p.until(func() bool {
		s := p.decode.Stats()
		return p.server.Pinned(p.decoder()) == s.PinnedBlocks*16 && s.Running == 0
	})
}

// Turns of no conversation pin as much, and are released with the rest.
func TestPinned_WhatWaitsForItsReleaseCounts(t *testing.T) {
	p := newPinning(t, func(c *server.Config) { c.ReleaseBacklog = 1000 })
	for i := range 40 {
		body := with(fmt.Sprintf(`"max_tokens":100,"x":%d`, i))
		body = strings.Replace(body, `"content":"q"`, fmt.Sprintf(`"content":"%d %s SAY no"`, i, strings.Repeat("The next one reads them. ", 15)), 1)
		p.wantOK(p.send(body), "miss;reason=no_conversation")
		p.settle()
	}
}

// What is known of pins is what decode says: of tickets in the store, of one that another has displaced, and of those that wait for
// their release.
func TestPinned_IsWhatDecodeSays(t *testing.T) {
	p := newPinning(t, func(c *server.Config) { c.PinnedShare, c.ReleaseBacklog, c.ReuseMinTokens = 1, 1000, 120 }) // the question asked again has 113, and uses no ticket
	want := func(what string) {
		t.Helper()
		p.until(func() bool { return p.decode.Stats().Running == 0 })
		if known, pinned := p.server.Pinned(p.decoder()), p.decode.Stats().PinnedBlocks*16; known != pinned {
			t.Errorf("%s: %d tokens are known to be pinned, want %d", what, known, pinned)
		}
	}
	p.turn("a")
	want("a ticket")
	p.turn("b")
	want("another conversation's")
	p.said["a"] = nil
	p.turn("a")
	want("an answer that was made again, and one that waits for its release")
	p.turn("a")
	want("a ticket that was used")
	if s := p.decode.Stats(); s.Pins < 2 || s.Pins > 3 { // the release has ridden on the leg that had no ticket, or waits
		t.Errorf("got %d pins", s.Pins)
	}
}

// A ticket goes to one taker: the turn that has it, or the budget.
func TestPinned_TurnsAndTheBudgetRaceForTickets(t *testing.T) {
	t.Parallel()
	p := newPinning(t, nil)
	const conversations, rounds = 12, 4
	talks := make([]*pinning, conversations)
	for i := range talks {
		talks[i] = &pinning{running: p.running, prefill: p.prefill, decode: p.decode, said: map[string][]map[string]string{}}
	}
	for range rounds {
		ended := make(chan reply, conversations)
		for i, talk := range talks {
			go func() { ended <- talk.next(fmt.Sprint("c", i)) }()
		}
		for range talks {
			got := <-ended
			p.wantWhole("a turn", got)
			p.wantOK(got, "")
		}
	}
	p.settle()
	p.wantAllPinsKnown()
	s := p.decode.Stats()
	t.Logf("%d reads and %d releases of %d answers", s.Reads, s.Releases, s.Finished)
	if s.Releases == 0 || s.Reads == 0 {
		t.Errorf("got %d reads and %d releases, want some of both: the test shows nothing", s.Reads, s.Releases)
	}
}
