package convcachetest

import (
	"context"
	"fmt"
	"slices"

	"carryover/convcache"
)

// clients returns so many clients of one store, each with a conversation of its own.
func clients(h Harness, n int) []*client {
	all := make([]*client, n)
	for i := range all {
		all[i] = newClient(h)
		all[i].key[0] += byte(i)
	}
	return all
}

// under is a ticket as a look-up of several keys shows it.
type under struct {
	of     *client
	ticket convcache.Ticket
}

// peekAll looks the conversations of clients up at once, and compares the outcome and the branches with their keys.
func peekAll(ctx context.Context, of []*client, want convcache.Outcome, tickets ...under) {
	c := of[0]
	keys := make([]convcache.Key, len(of))
	for i, one := range of {
		keys[i] = one.key
	}
	asked := slices.Clone(keys)
	got, outcome := c.store.Peek(ctx, keys)
	switch {
	case !slices.Equal(keys, asked):
		c.wrong("peek of %d keys: changed them", len(keys))
	case outcome != want:
		c.wrong("peek of %d keys: outcome: got %v, want %v", len(keys), outcome, want)
	case len(got) != len(tickets):
		c.wrong("peek of %d keys: got %d branches, want %d", len(keys), len(got), len(tickets))
	default:
		for i, b := range got {
			if b.Key != tickets[i].of.key {
				c.wrong("peek of %d keys: branch %d: got key %v, want %v", len(keys), i, b.Key.Short(), tickets[i].of.key.Short())
			}
			if err := sameBranch(b.Branch, tickets[i].ticket.Branch); err != nil {
				c.wrong("peek of %d keys: branch %d: %w", len(keys), i, err)
			}
		}
	}
}

// first returns the first surprise of several clients.
func first(all []*client) error {
	for i, c := range all {
		if c.err != nil {
			return fmt.Errorf("conversation %d: %w", i, c.err)
		}
	}
	return nil
}

func checkKeysInOrder(ctx context.Context, h Harness) error {
	all := clients(h, convcache.MaxKeys)
	a, b, d, none := all[0], all[1], all[2], all[3]
	older, other, newer, last := ticket(1), ticket(2), ticket(3), ticket(4)
	a.put(ctx, older, ttl)
	b.put(ctx, other, ttl)
	a.put(ctx, newer, ttl)
	d.put(ctx, last, ttl)
	peekAll(ctx, []*client{a, b, none, d}, convcache.Found, under{a, newer}, under{a, older}, under{b, other}, under{d, last})
	peekAll(ctx, []*client{none, d, b, a}, convcache.Found, under{d, last}, under{b, other}, under{a, newer}, under{a, older})
	peekAll(ctx, []*client{b, none}, convcache.Found, under{b, other})
	peekAll(ctx, []*client{b}, convcache.Found, under{b, other})
	return first(all)
}

func checkKeysFull(ctx context.Context, h Harness) error {
	all := clients(h, convcache.MaxKeys)
	var want []under
	for i, c := range all {
		var own []under
		for n := range 4 {
			t := ticket(1 + 4*i + n)
			c.put(ctx, t, ttl)
			own = append(own, under{c, t})
		}
		slices.Reverse(own)
		want = append(want, own...)
	}
	peekAll(ctx, all, convcache.Found, want...)
	return first(all)
}

func checkKeysMissing(ctx context.Context, h Harness) error {
	all := clients(h, 2)
	peekAll(ctx, all, convcache.Empty)
	if got, outcome := h.Store.Peek(ctx, nil); outcome != convcache.Empty || len(got) != 0 {
		all[0].wrong("peek of no key: got %v and %d branches, want %v and 0", outcome, len(got), convcache.Empty)
	}
	return first(all)
}

func checkKeysBeyond(ctx context.Context, h Harness) error {
	all := clients(h, convcache.MaxKeys+1)
	last, beyond := ticket(1), ticket(2)
	all[convcache.MaxKeys-1].put(ctx, last, ttl)
	all[convcache.MaxKeys].put(ctx, beyond, ttl)
	peekAll(ctx, all, convcache.Found, under{all[convcache.MaxKeys-1], last})
	return first(all)
}

func checkKeysExpired(ctx context.Context, h Harness) error {
	all := clients(h, 3)
	short, long, none := all[0], all[1], all[2]
	ends, stays := ticket(1), ticket(2)
	short.put(ctx, ends, ttl)
	long.put(ctx, stays, 2*ttl)
	h.Advance(ttl)
	peekAll(ctx, []*client{short, long}, convcache.Found, under{long, stays})
	peekAll(ctx, []*client{long, short}, convcache.Found, under{long, stays})
	peekAll(ctx, []*client{short, none}, convcache.Expired)
	peekAll(ctx, []*client{none, short}, convcache.Expired)
	h.Advance(ttl)
	peekAll(ctx, []*client{long, none, short}, convcache.Expired)
	return first(all)
}

func checkKeysTaken(ctx context.Context, h Harness) error {
	all := clients(h, 2)
	a, b := all[0], all[1]
	mine, other := ticket(1), ticket(1) // the same tokens
	a.put(ctx, mine, ttl)
	b.put(ctx, other, ttl)
	peekAll(ctx, all, convcache.Found, under{a, mine}, under{b, other})
	a.take(ctx, other, convcache.Consumed)
	peekAll(ctx, all, convcache.Found, under{a, mine}, under{b, other})
	b.take(ctx, other, convcache.Taken)
	peekAll(ctx, all, convcache.Found, under{a, mine})
	a.take(ctx, mine, convcache.Taken)
	peekAll(ctx, all, convcache.Empty)
	return first(all)
}

func checkKeysContextEnded(ctx context.Context, h Harness) error {
	all := clients(h, 2)
	a, b := all[0], all[1]
	mine, other := ticket(1), ticket(2)
	a.put(ctx, mine, ttl)
	b.put(ctx, other, ttl)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	peekAll(ended, all, convcache.Unavailable)
	peekAll(ctx, all, convcache.Found, under{a, mine}, under{b, other})
	return first(all)
}
