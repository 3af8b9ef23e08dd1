package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/vllmsim"
)

// The mutants take one safety property away from the program and show that the
// assertions that end every scenario fail then. A mutant that is not noticed would mean
// that the scenarios prove nothing about that property.

func startMutant(t *testing.T, mutate func(*server.Deps), flags ...string) *rig {
	t.Helper()
	return startRig(t, rigConfig{
		prefills: 2, flags: append([]string{"--routing-prefill", "round_robin"}, flags...), replace: mutate, taught: true,
	})
}

// says asks for the n-th text.
func says(n int) json.RawMessage { return question("SAY " + longText(n) + ".") }

// speech is what was said in a chat.
type speech = []json.RawMessage

// bothWays runs a test of the program as it is, and of a mutant of it.
func bothWays(t *testing.T, run func(t *testing.T, mutant bool)) {
	t.Helper()
	for _, mutant := range []bool{false, true} {
		t.Run(choose(mutant, "mutant", "as it is"), func(t *testing.T) {
			t.Parallel()
			run(t, mutant)
		})
	}
}

func question(text string) json.RawMessage {
	return encode(map[string]string{"role": "user", "content": text})
}

// blind tells each look-up of a conversation that what it holds are the tokens of another one, the first: the chains are mixed up.
func blind(store convcache.Store) convcache.Store {
	var other atomic.Pointer[convcache.Chain]
	mixUp := func(b *convcache.Branch) {
		b.Chain.Whole, b.Chain.Blocks = 0, other.Load().Blocks[:min(len(other.Load().Blocks), b.Tokens/b.Chain.BlockSize)]
	}
	return &tapped{Store: store, peeked: mixUp, taken: func(ticket *convcache.Ticket) { mixUp(&ticket.Branch) }, puts: func(ticket convcache.Ticket) bool {
		other.CompareAndSwap(nil, &ticket.Chain)
		return true
	}}
}

func TestMutant_WithChainsMixedUpTheOracleSeesIt(t *testing.T) {
	first, edited := says(1), says(2)
	second := says(3)
	bothWays(t, func(t *testing.T, mutant bool) {
		r := startMutant(t, func(deps *server.Deps) {
			if mutant {
				deps.Store = blind(deps.Store)
			}
		})
		reply := r.askAs(t, "other", edited).assistant()
		r.askAs(t, "mutant", first)
		a := r.askAs(t, "mutant", edited, reply, second)
		if !mutant {
			r.verify(t, pins{})
			return
		}
		if !a.hit() {
			t.Fatalf("X-KV-Reuse %q: the mutant does not work", a.reuse())
		}
		r.stop()
		if r.wrong() == 0 {
			t.Error("a ticket was used for another history, and no instance noticed")
		}
		if a.content == longText(3)+"." {
			t.Error("a ticket was used for another history, and the answer is right all the same")
		}
	})
}

// Of a store that looks first and removes later, as one with GET and DEL does, equal turns all get the ticket.
func TestMutant_WithTakeInTwoStepsTheOracleSeesIt(t *testing.T) {
	r := startMutant(t, func(deps *server.Deps) { deps.Store = leaving(deps.Store, true) })
	first, second := says(1), says(2)
	reply := r.askAs(t, "mutant", first).assistant()
	// Both pairs are proven, or one of the turns would wait for the other's trial.
	decode := r.proxy.Fleet.Engines(upstream.RoleDecode)[0].Current(t.Context())
	for _, prefill := range r.proxy.Fleet.Engines(upstream.RolePrefill) {
		pair := prefill.Current(t.Context()).PairWith(decode)
		pair.Begin("")
		pair.End(pairs.Answered, "")
	}
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() { r.askAs(t, "mutant", first, reply, second) })
	}
	group.Wait()
	r.stop()
	total := r.sum(config.RoleDecode)
	if total["double_reads"] == 0 {
		t.Errorf("two turns used one ticket, and decode saw no double read: %v", total)
	}
}

// replayingEngine sends a hand-over a second time, as a proxy does that repeats a
// decode leg after it was sent.
type replayingEngine struct {
	upstream.Legs
	to *upstream.Instance // nil: the same instance again
}

// Decode implements upstream.Legs.
func (e *replayingEngine) Decode(ctx context.Context, leg upstream.Leg, limits upstream.Limits) (*upstream.Stream, error) {
	again := leg
	again.Body = slices.Clone(leg.Body)
	again.RequestID += "-again"
	if e.to != nil {
		again.Instance = e.to
	}
	stream, err := e.Legs.Decode(ctx, leg, limits)
	if err != nil {
		return nil, err
	}
	second, err := e.Legs.Decode(ctx, again, limits)
	if err == nil {
		_, _ = upstream.ReadWithin(second, 1<<20, nil, nil)
		_ = second.Close()
	}
	return stream, nil
}

func TestMutant_WithAHandOverToTwoDecodesTheOracleSeesIt(t *testing.T) {
	other := testrig.StartInstance(t, vllmsim.DefaultConfig(), "")
	instance, err := upstream.NewInstance(upstream.RoleDecode, "other", other.URL())
	noError(t, err)
	for name, to := range map[string]*upstream.Instance{"same instance": nil, "two instances": &instance} {
		t.Run(name, func(t *testing.T) {
			r := startMutant(t, func(deps *server.Deps) { deps.Legs = &replayingEngine{Legs: deps.Legs, to: to} })
			r.askAs(t, "mutant", says(1))
			r.stop()
			if total := r.sum(config.RolePrefill); total["double_reads"] == 0 {
				t.Errorf("a hand-over was read twice, and prefill saw no double read: %v", total)
			}
		})
	}
}

// hoarding never forgets its first ticket: what was taken can be taken again. It keeps no other, of which a turn could use more.
func hoarding(store convcache.Store) convcache.Store {
	var first atomic.Pointer[convcache.Ticket]
	return &tapped{Store: store, puts: func(ticket convcache.Ticket) bool { return first.CompareAndSwap(nil, &ticket) }, takes: func(convcache.TicketID) (*convcache.Ticket, bool) {
		ticket := *first.Load()
		ticket.Params = bytes.Clone(ticket.Params)
		unrecognised(&ticket)
		return &ticket, true
	}}
}

func TestMutant_WithATicketUsedTwiceTheOracleSeesIt(t *testing.T) {
	r := startMutant(t, func(deps *server.Deps) { deps.Store = hoarding(deps.Store) })
	first := says(1)
	reply := r.askAs(t, "mutant", first).assistant()
	for n := 2; n < 5; n++ {
		r.askAs(t, "mutant", first, reply, says(n))
	}
	r.stop()
	if r.wrong() == 0 {
		t.Error("a ticket was used three times, and no instance noticed")
	}
}

// What keeps equal words apart is the key: with one key for everybody another tenant gets the ticket.
func TestMutant_WithOneKeyForAllAnotherTenantGetsTheTicket(t *testing.T) {
	r := startMutant(t, func(deps *server.Deps) {
		deps.Store = &tapped{Store: deps.Store, key: func() convcache.Key { return convcache.Key{1} }}
	}, "--tenant-header", "X-Tenant", "--conversation-by-content", "on")
	as := func(tenant string, messages ...json.RawMessage) *answered {
		return r.must(t, "/v1/chat/completions", http.Header{"X-Tenant": {tenant}}, object{"model": "sim", "messages": messages, "max_tokens": 400})
	}
	first := as("a", says(31)).assistant()
	if a := as("b", says(31), first, says(32)); !a.hit() {
		t.Errorf("X-KV-Reuse %q: the mutant does not work", a.reuse())
	}
}
