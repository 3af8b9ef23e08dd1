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
	p.until(func() bool { return p.decode.Stats().PinnedBlocks*16 <= budget })
}

// wantKnown waits until decode pins what the ledger knows, for so many answers, -1 for any number.
func (p *pinning) wantKnown(what string, pins int) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%s: %d tokens are known to be pinned; decode says %+v", what, p.server.Pins.Pinned(p.decoder()), p.decode.Stats())
		}
	}()
	p.until(func() bool {
		s := p.decode.Stats()
		return s.Running == 0 && (s.Pins == pins || pins < 0) && p.server.Pins.Pinned(p.decoder()) == s.PinnedBlocks*16
	})
}

// stray is a turn of no conversation.
func (p *pinning) stray(n int) {
	p.t.Helper()
	p.wantOK(p.send(fmt.Sprintf(`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"%d %s SAY no"}]}`, n, strings.Repeat("The next one reads them. ", 15))), "miss;reason=no_conversation")
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
	p.wantKnown("the newest", -1)
	for i := range 3 {
		p.wantOK(p.turn(fmt.Sprint("c", conversations-1-i)), "hit;")
		p.settle()
	}
	p.wantOK(p.turn("c0"), "prefix;tokens=112;reason=released_over_budget")
	p.settle()
	p.wantOK(p.turn("c0"), "hit;")
	p.settle()
	if n := p.log.count("released the oldest tickets", `"decode":"decode"`); n != 1 {
		t.Errorf("got %d lines about it, want 1 within a minute", n)
	}
	p.wantKnown("all", -1)
}

// Turns of no conversation pin as much, and are released with the rest.
func TestPinned_WhatWaitsForItsReleaseCounts(t *testing.T) {
	p := newPinning(t, func(c *server.Config) { c.ReleaseBacklog = 1000 })
	for i := range 40 {
		p.stray(i)
		p.settle()
	}
}

// What is known of pins is what decode says: of tickets in the store, of one that another has displaced, and of those that wait for
// their release.
func TestPinned_IsWhatDecodeSays(t *testing.T) {
	p := newPinning(t, func(c *server.Config) { c.PinnedShare, c.ReleaseBacklog, c.ReuseMinTokens = 1, 1000, 120 }) // the question asked again has 113, and uses no ticket
	p.turn("a")
	p.wantKnown("a ticket", 1)
	p.turn("b")
	p.wantKnown("another conversation's", 2)
	p.said["a"] = nil
	p.turn("a")
	p.wantKnown("an answer that was made again, and one that waits for its release", 3)
	p.turn("a")
	p.wantKnown("a ticket that was used", -1)
	if s := p.decode.Stats(); s.Pins < 2 || s.Pins > 3 { // the release has ridden on the leg that had no ticket, or waits
		t.Errorf("got %d pins", s.Pins)
	}
}

// A ticket goes to one taker: the turn that has it, or the budget.
func TestPinned_TurnsAndTheBudgetRaceForTickets(t *testing.T) {
	t.Parallel()
	p := newPinning(t, nil)
	const conversations, rounds = 12, 4
	talks := make([]pinning, conversations)
	for i := range talks {
		talks[i] = *p
		talks[i].said = map[string][]map[string]string{}
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
	p.wantKnown("all", -1)
	s := p.decode.Stats()
	t.Logf("%d reads and %d releases of %d answers", s.Reads, s.Releases, s.Finished)
	if s.Releases == 0 || s.Reads == 0 {
		t.Errorf("got %d reads and %d releases, want some of both: the test shows nothing", s.Reads, s.Releases)
	}
}
