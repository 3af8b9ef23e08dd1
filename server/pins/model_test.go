package pins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// history drives two replicas, which share a store, through a random history.
type history struct {
	*decodeModel
	t        *testing.T
	store    *modelStore
	replicas []*replica
	claims   []*modelClaim
	riding   []modelRide
	doubtful map[string]bool // answers of which a replica can't know whether their blocks are free, or another's
	told     []string
}

type modelClaim struct {
	*Claim
	by  *replica
	key convcache.Key
}

type modelRide struct {
	Claim
	name string
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{t: t, decodeModel: newDecodeModel(t, seed), doubtful: map[string]bool{}}
	h.store = newModelStore(h.random)
	cfg := releasing()
	cfg.Release = seed%5 > 0
	for range 2 {
		h.replicas = append(h.replicas, newReplica(t, h.decodeModel, h.store, cfg))
	}
	return h
}

func (h *history) key() convcache.Key { return convcache.Key{byte(1 + h.random.IntN(3))} }

// doubt notes that an answer may count at a replica although decode does not hold it.
func (h *history) doubt(t *convcache.Ticket) { h.doubtful[h.names[t.ID]] = true }

// step does one thing at random, at one of the replicas.
func (h *history) step(ctx context.Context) {
	r := h.replicas[h.random.IntN(len(h.replicas))]
	key := h.key()
	one := func() (t convcache.Ticket, found bool) {
		for _, id := range slices.SortedFunc(maps.Keys(h.store.tickets[key]), func(a, b convcache.TicketID) int { return slices.Compare(a[:], b[:]) }) {
			return h.store.tickets[key][id], true
		}
		return t, false
	}
	// What a replica takes may be another's, which counts it until it hears of that; and a leg of which there is no answer may have freed it.
	doubtAll := func() {
		for _, of := range h.store.tickets {
			for _, t := range of {
				h.doubt(&t)
			}
		}
	}
	steps := map[string]func(){
		"answer": func() {
			ticket := r.put(key[0], 1+h.random.IntN(50), "")
			switch h.random.IntN(3) {
			case 0:
				r.plan(ticket.ID, h.now(), time.Time{})
			case 1:
				r.plan(ticket.ID, time.Time{}, h.now().Add(time.Duration(h.random.IntN(60))*time.Second))
			}
		},
		"answer without a ticket": func() {
			ticket := r.answer(1) // its params name one token
			r.UnuseParams(ticket.Params, r.decode, "m", ticket.FreshAsOf)
		},
		"take": func() {
			shown, found := one()
			if !found {
				return
			}
			h.doubt(&shown)
			if shown.HandedBack() {
				return
			}
			claim, _, outcome := r.Take(ctx, key, shown.ID, Claim{Holder: r.decode, Reader: r.prefill, PairState: r.prefill.PairWith(r.decode)}, "m", "turn")
			if outcome == convcache.Taken {
				h.claims = append(h.claims, &modelClaim{&claim, r, key})
			}
		},
		"end of a claim": func() { h.settle(ctx) },
		"give up": func() {
			if ticket, found := one(); found {
				h.doubt(&ticket)
				r.GiveUp(ctx, key, ticket.ID, "m")
			}
		},
		"piggyback": func() {
			if ride := r.Piggyback(r.prefill); ride.Carries() {
				h.riding = append(h.riding, modelRide{ride, h.names[ride.released.id]})
			}
		},
		"end of a piggyback": func() { h.arrive() },
		"releases":           func() { doubtAll(); r.takeLate(ctx); r.releases(ctx) },
		"hand-backs":         func() { doubtAll(); r.HandBacks(ctx, h.now()) },
		"budget":             func() { doubtAll(); r.enforce(ctx) },
		"drain": func() {
			doubtAll()
			r.fleet.Drain(upstream.RoleDecode, "d", h.random.IntN(2) == 0)
			if r.cfg.Release {
				r.evacuate()
			}
		},
		"lost answer": func() { doubtAll(); h.store.lost = true },
		"hang":        func() { h.hangs = !h.hangs },
		"a while":     func() { h.passed.Add(int64(time.Duration(h.random.IntN(100)) * time.Second)) },
		"restart": func() {
			h.start.Add(1)
			clear(h.held)
			for _, r := range h.replicas {
				r.fleet.Engine(upstream.RoleDecode, "d").Refresh(ctx)
				if r.decode = r.fleet.Engine(upstream.RoleDecode, "d").Last(); !r.decode.Known() {
					h.t.Fatal("decode is not known")
				}
				r.prefill.PairWith(r.decode).ExchangedKV()
			}
			clear(h.store.tickets) // a ticket of another incarnation is a miss
		},
		"sleep": func() { // vLLM waits with it until nothing is pinned
			if h.tokens() == 0 {
				h.generation++
			}
		},
	}
	names := slices.Sorted(maps.Keys(steps))
	what := names[h.random.IntN(len(names))]
	if what == "restart" && h.random.IntN(4) > 0 {
		what = "answer"
	}
	h.told = append(h.told, what)
	steps[what]()
	for _, r := range h.replicas {
		r.prefill.Engine().Refresh(ctx)
		r.decode.Engine().Refresh(ctx)
	}
}

// settle ends the oldest claim as a turn does.
func (h *history) settle(ctx context.Context) {
	if len(h.claims) == 0 {
		return
	}
	c := h.claims[0]
	h.claims = h.claims[1:]
	blocks := h.names[c.Ticket.ID]
	switch h.random.IntN(6) {
	case 0:
		c.GiveUp()
	case 1, 2: // the leg ends as it happens
		c.Sent()
		if leg, failed := h.leg(blocks).(*upstream.LegError); failed { //nolint:errorlint // it is one
			c.Doubted(leg)(false)
		} else {
			c.Conclude(pairs.Answered)
		}
	case 3: // a panic, or an error that says nothing
		c.Sent()
	case 4:
		c.Sent()
		c.Doubted(&upstream.LegError{Kind: upstream.Dial})(false)
	}
	for range 2 {
		c.End(ctx, func(ctx context.Context, ticket convcache.Ticket) { c.by.Put(ctx, c.key, ticket, "m") })
	}
}

// arrive ends the leg of the oldest release that rides on one.
func (h *history) arrive() {
	if len(h.riding) == 0 {
		return
	}
	r := h.riding[0]
	h.riding = h.riding[1:]
	switch err := h.leg(r.name); {
	case err != nil && h.random.IntN(3) == 0:
		r.GiveUp()
		h.doubtful[r.name] = true
	default:
		leg, _ := err.(*upstream.LegError) //nolint:errorlint // it is one
		ends(r.Claim, leg)
	}
}

// check compares what the replicas count with what decode holds: nothing is counted by nobody, and what is counted is held, but for what is on a
// leg, or was on one that had no answer, or may be another replica's.
func (h *history) check() {
	counted, holds := 0, h.tokens()
	for _, r := range h.replicas {
		counted += r.Pinned(r.decode.Engine())
		r.mu.Lock()
		for id, n := range r.pins {
			blocks := h.names[id]
			open := n.state == lost || n.state == freeing || n.state == sent || n.reader != nil || n.tried || h.doubtful[blocks]
			if held := h.held[blocks]; n.holder != nil && n.tokens != held.tokens && (!open || held.tokens > 0) {
				h.t.Errorf("%d tokens of %s are %s, decode holds %d", n.tokens, blocks, n.state, held.tokens)
			}
		}
		r.mu.Unlock()
	}
	for _, id := range h.store.missing {
		holds -= h.held[h.names[id]].tokens
	}
	if counted < holds {
		h.t.Errorf("the replicas count %d tokens, decode holds %d", counted, holds)
	}
}

func TestPins_AreWhatDecodeHolds(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHistory(t, seed)
			for range 120 {
				h.step(t.Context())
				if h.check(); t.Failed() {
					t.Fatalf("after %q", h.told)
				}
			}
			// Nothing is left once all legs are over and decode's TTL has ended.
			h.hangs = false
			for len(h.claims) > 0 {
				h.settle(t.Context())
			}
			for len(h.riding) > 0 {
				h.arrive()
			}
			h.passed.Add(int64(2 * modelTTL))
			for _, r := range h.replicas {
				if n := r.Pinned(r.decode.Engine()); n != 0 || len(r.pins) != 0 {
					t.Errorf("%d tokens and %d pins are left at the end", n, len(r.pins))
					for _, n := range r.pins {
						t.Errorf("%s, of %s", n.state, h.names[n.id])
					}
				}
			}
		})
	}
}
