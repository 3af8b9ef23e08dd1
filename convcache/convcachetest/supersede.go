package convcachetest

import (
	"context"
	"fmt"

	"carryover/convcache"
)

// holding returns a ticket with the given chain.
func holding(n int, c convcache.Chain) convcache.Ticket {
	t := ticket(n)
	t.Chain, t.Tokens = c, c.Tokens
	return t
}

func checkContained(ctx context.Context, h Harness) error {
	c := newClient(h)
	first, second := holding(1, chain(70, 1, 2)), holding(2, chain(90, 1, 2))
	third := holding(3, chain(130, 1, 2, 3, 4))
	other := ticket(4)
	c.put(ctx, first, ttl)
	c.put(ctx, other, ttl)
	c.put(ctx, second, ttl, first)
	c.put(ctx, third, ttl, second)
	c.take(ctx, second, convcache.Consumed)
	c.peek(ctx, convcache.Found, third, other)

	h.Advance(ttl)
	late := holding(5, chain(170, 1, 2, 3, 4, 5))
	c.put(ctx, late, ttl) // what has expired is not handed back
	c.peek(ctx, convcache.Found, late)
	return c.err
}

func checkSameTokens(ctx context.Context, h Harness) error {
	c := newClient(h)
	older, newer := holding(1, chain(70, 1, 2)), holding(2, chain(70, 1, 2))
	c.put(ctx, older, ttl)
	c.put(ctx, newer, ttl, older)
	c.peek(ctx, convcache.Found, newer)

	short, again := holding(3, chain(20)), holding(4, chain(20))
	c.put(ctx, short, ttl)
	c.put(ctx, again, ttl, short)
	c.peek(ctx, convcache.Found, again, newer)
	return c.err
}

func checkSupersedingMakesRoom(ctx context.Context, h Harness) error {
	c := newClient(h)
	a, b, d := ticket(1), ticket(2), ticket(3)
	e, f := holding(4, chain(70, 1, 2)), holding(5, chain(100, 1, 2, 3))
	for _, t := range []convcache.Ticket{a, b, d, e} {
		c.put(ctx, t, ttl)
	}
	c.put(ctx, f, ttl, e)
	c.peek(ctx, convcache.Found, f, d, b, a)
	return c.err
}

func checkNotContained(ctx context.Context, h Harness) error {
	coarse := chain(170, 1, 2, 3)
	coarse.BlockSize = 48
	otherTail := chain(100, 1, 2, 3)
	otherTail.Whole++
	for n, later := range []convcache.Chain{
		chain(100, 1, 2, 4), // edited in the third block
		chain(200, 1, 2, 4, 5, 6, 7),
		chain(200, 9, 2, 3, 4, 5, 6), // and in the first
		chain(70, 1, 2),              // answered again, shorter
		chain(98, 1, 2, 3),
		chain(40, 1),
		chain(20),
		otherTail,
		coarse, // in blocks of another size
		{},
	} {
		c := newClient(h)
		c.key[1] = byte(n)
		older, newer := holding(1, chain(100, 1, 2, 3)), holding(2, later)
		c.put(ctx, older, ttl)
		c.put(ctx, newer, ttl)
		c.peek(ctx, convcache.Found, newer, older)
		if c.err != nil {
			return fmt.Errorf("later chain %+v: %w", later, c.err)
		}
	}
	return nil
}

func checkNoChain(ctx context.Context, h Harness) error {
	c := newClient(h)
	a, b := holding(1, convcache.Chain{}), holding(2, convcache.Chain{})
	d := holding(3, chain(100, 1, 2, 3))
	c.put(ctx, a, ttl)
	c.put(ctx, b, ttl)
	c.put(ctx, d, ttl)
	c.peek(ctx, convcache.Found, d, b, a)
	return c.err
}
