package redisstore_test

import (
	"context"
	"testing"
	"time"

	"carryover/convcache"
)

// largestOfMixed is the MaxValue of stores whose tickets are mixed, with room for more than a ticket without params.
const largestOfMixed = 2000

// mixed is what a Redis is like some of whose tickets are too large to be sent: two Memories that know nothing of each
// other, the home of the large ones first.
type mixed struct {
	home, shared *convcache.Memory
}

// Peek shows both, key by key.
func (m mixed) Peek(ctx context.Context, keys []Key) (branches []KeyedBranch, outcome Outcome) {
	outcome = Empty
	for i := range keys {
		for _, home := range []*convcache.Memory{m.home, m.shared} {
			own, of := home.Peek(ctx, keys[i:i+1])
			if branches = append(branches, own...); of == Expired {
				outcome = of
			}
		}
	}
	if len(branches) > 0 {
		outcome = Found
	}
	return branches, outcome
}

// Take takes from the one that has it.
func (m mixed) Take(ctx context.Context, k Key, id TicketID) (Ticket, Outcome) {
	if t, outcome := m.home.Take(ctx, k, id); outcome != Consumed {
		return t, outcome
	}
	return m.shared.Take(ctx, k, id)
}

// Put puts to one of them.
func (m mixed) Put(ctx context.Context, k Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	if len(t.Params) > largestOfMixed {
		return m.home.Put(ctx, k, t, ttl)
	}
	return m.shared.Put(ctx, k, t, ttl)
}

func TestRedis_DoesWithLargeTicketsWhatTwoMemoriesDo(t *testing.T) {
	t.Parallel()
	c := &clock{}
	two := mixed{
		home: convcache.NewMemory(convcache.MemoryConfig{Now: c.now}), shared: convcache.NewMemory(convcache.MemoryConfig{Now: c.now}),
	}
	compare(t, Config{Now: c.now, MaxValue: largestOfMixed}, c, two, true)
}

// sizes is the plan of stores that share some tickets of a fleet and keep others: those of two or more blocks.
func sizes() fleetPlan { return fleetPlan{maxValue: 128} }

// largeTicket returns a ticket that stays with its store where plans are of all sizes, and supersedes none of another number.
func largeTicket(n int) Ticket {
	t := someTicket(nil)
	t.Chain = Chain{BlockSize: 16, Tokens: 48, Whole: uint64(n), Blocks: []uint64{2, 3, 4}}
	return t
}
