package redisstore_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carryover/convcache"
)

// someTicket returns a ticket that carries its name. With a source of chance it is akin to others: few
// chains, which contain each other.
func someTicket(rng *rand.Rand) Ticket {
	t := Ticket{Branch: convcache.Branch{ID: convcache.NewTicketID()}}
	t.Params = []byte(t.ID.String())
	if rng == nil {
		t.Chain = Chain{Tokens: 1, Whole: binary.BigEndian.Uint64(t.ID[:])}
		return t
	}
	conversation, blocks, rest := uint64(1+rng.IntN(4)), rng.IntN(4), rng.IntN(2)
	if blocks+rest == 0 {
		return t
	}
	t.Chain = Chain{BlockSize: 16, Tokens: 16*blocks + rest, Whole: 100*conversation + uint64(2*blocks+rest)}
	for i := range blocks {
		t.Chain.Blocks = append(t.Chain.Blocks, 10*conversation+uint64(i))
	}
	t.Tokens = t.Chain.Tokens
	return t
}

// largeTicket returns a ticket that stays with its store where the plan is of all sizes, and supersedes none of another number.
func largeTicket(n int) Ticket {
	t := someTicket(nil)
	t.Chain = Chain{BlockSize: 16, Tokens: 48, Whole: uint64(n), Blocks: []uint64{2, 3, 4}}
	return t
}

// someNote returns the note of a ticket, or again of a note, which carries its name too.
func someNote(t Ticket) Ticket {
	return t.Note(Holder{Instance: "prefill", Incarnation: t.ID.String()}, time.Now())
}

// randomClient does random operations through one store.
type randomClient struct {
	fleet *fleet
	store int
	rng   *rand.Rand
	short bool // some tickets end after 20 ms
	held  []heldTicket
}

// heldTicket is a ticket that a client took or was handed back.
type heldTicket struct {
	key    Key
	ticket Ticket
}

// step does one or two operations.
func (c *randomClient) step() {
	k := key(c.rng.IntN(fleetKeys))
	switch n := c.rng.IntN(100); {
	case n < 30:
		c.put(k, someTicket(c.rng))
	case n < 45 && len(c.held) > 0:
		last := c.held[len(c.held)-1]
		c.held = c.held[:len(c.held)-1]
		if c.rng.IntN(2) == 0 {
			last.ticket = someNote(last.ticket)
		}
		c.put(last.key, last.ticket)
	case n < 60:
		if id, ok := c.fleet.recall(k, c.rng); ok {
			c.take(k, id)
		}
	default:
		branches, _ := c.fleet.peek(c.store, c.keysWith(k)...)
		if len(branches) > 0 && n < 90 {
			b := branches[c.rng.IntN(len(branches))]
			c.take(b.Key, b.ID)
		}
	}
}

// keysWith returns a key, and as often as not others.
func (c *randomClient) keysWith(k Key) []Key {
	keys := []Key{k}
	for n := c.rng.IntN(2 * convcache.MaxKeys); len(keys) <= n && len(keys) < convcache.MaxKeys; n-- {
		if other := key(c.rng.IntN(fleetKeys)); !slices.Contains(keys, other) {
			keys = append(keys, other)
		}
	}
	return keys
}

func (c *randomClient) put(k Key, t Ticket) {
	ttl := fleetLife
	if c.short && c.rng.IntN(10) == 0 {
		ttl = 20 * time.Millisecond
	}
	displaced, _ := c.fleet.put(c.store, k, t, ttl)
	for _, old := range displaced {
		c.held = append(c.held, heldTicket{k, old})
	}
}

func (c *randomClient) take(k Key, id TicketID) {
	if t, outcome := c.fleet.take(c.store, k, id); outcome == Taken {
		c.held = append(c.held, heldTicket{k, t})
	}
}

// newClients returns the clients of all stores.
func (f *fleet) newClients(seed uint64, short bool) []*randomClient {
	var clients []*randomClient
	for i := range fleetStores * fleetClients {
		clients = append(clients, &randomClient{fleet: f, store: i % fleetStores, rng: rand.New(rand.NewPCG(seed, uint64(i))), short: short})
	}
	return clients
}

// runClients has the clients do so many steps in all, and returns when the first third has begun. The steps
// have ended when wait returns.
func runClients(clients []*randomClient, steps int64) (wait func()) {
	var next atomic.Int64
	var working sync.WaitGroup
	third := make(chan struct{})
	for _, c := range clients {
		working.Go(func() {
			for n := next.Add(1); n <= steps; n = next.Add(1) {
				if n == steps/3 {
					close(third)
				}
				c.step()
			}
		})
	}
	<-third
	return working.Wait
}
