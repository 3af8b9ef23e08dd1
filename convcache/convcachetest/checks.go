package convcachetest

import (
	"bytes"
	"context"
	"sync"
	"time"

	"carryover/convcache"
)

const ttl = time.Minute

func checkRoundTrip(ctx context.Context, h Harness) error {
	c := newClient(h)
	t := ticket(1)
	c.put(ctx, t, ttl)
	c.peek(ctx, convcache.Found, t)
	c.peek(ctx, convcache.Found, t)
	c.take(ctx, t, convcache.Taken)
	return c.err
}

func checkUnknown(ctx context.Context, h Harness) error {
	c := newClient(h)
	c.peek(ctx, convcache.Empty)
	c.take(ctx, ticket(1), convcache.Consumed)
	return c.err
}

func checkTakenOnce(ctx context.Context, h Harness) error {
	c := newClient(h)
	t := ticket(1)
	c.put(ctx, t, ttl)
	c.take(ctx, t, convcache.Taken)
	c.take(ctx, t, convcache.Consumed)
	c.peek(ctx, convcache.Empty)
	return c.err
}

func checkConcurrentTakers(ctx context.Context, h Harness) error {
	const takers, rounds = 32, 20
	c := newClient(h)
	for round := range rounds {
		t := ticket(round)
		c.put(ctx, t, ttl)
		var outcomes [takers]convcache.Outcome
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range takers {
			wg.Go(func() {
				<-start
				_, outcomes[i] = h.Store.Take(ctx, c.key, t.ID)
			})
		}
		close(start)
		wg.Wait()
		taken := 0
		for _, outcome := range outcomes {
			switch outcome {
			case convcache.Taken:
				taken++
			case convcache.Consumed:
			default:
				c.wrong("round %d: concurrent take: got %v, want taken or consumed", round, outcome)
			}
		}
		if taken != 1 {
			c.wrong("round %d: %d of %d takers got the ticket, want 1", round, taken, takers)
		}
	}
	return c.err
}

func checkTakeLeavesOthers(ctx context.Context, h Harness) error {
	c := newClient(h)
	a, b, d := ticket(1), ticket(2), ticket(3)
	c.put(ctx, a, ttl)
	c.put(ctx, b, ttl)
	c.put(ctx, d, ttl)
	c.take(ctx, b, convcache.Taken)
	c.peek(ctx, convcache.Found, d, a)
	c.take(ctx, a, convcache.Taken)
	c.take(ctx, d, convcache.Taken)
	return c.err
}

func checkTakeUnknown(ctx context.Context, h Harness) error {
	c := newClient(h)
	a := ticket(1)
	c.put(ctx, a, ttl)
	c.take(ctx, ticket(1), convcache.Consumed)
	c.peek(ctx, convcache.Found, a)
	return c.err
}

func checkKeysApart(ctx context.Context, h Harness) error {
	mine := newClient(h)
	other := newClient(h)
	other.key[0]++
	t, foreign := ticket(1), ticket(1)
	mine.put(ctx, t, ttl)
	other.peek(ctx, convcache.Empty)
	other.take(ctx, t, convcache.Consumed)
	other.put(ctx, foreign, ttl)
	mine.peek(ctx, convcache.Found, t)
	mine.take(ctx, t, convcache.Taken)
	other.peek(ctx, convcache.Found, foreign)
	if mine.err != nil {
		return mine.err
	}
	return other.err
}

func checkExpiryAtPeek(ctx context.Context, h Harness) error {
	c := newClient(h)
	t := ticket(1)
	c.put(ctx, t, ttl)
	h.Advance(ttl - time.Millisecond)
	c.peek(ctx, convcache.Found, t)
	h.Advance(time.Millisecond)
	c.peek(ctx, convcache.Expired)
	h.Advance(time.Millisecond)
	c.peek(ctx, convcache.Expired)
	return c.err
}

func checkExpiryAtTake(ctx context.Context, h Harness) error {
	c := newClient(h)
	before, at, after := ticket(1), ticket(2), ticket(3)
	c.put(ctx, before, ttl)
	c.put(ctx, at, ttl)
	c.put(ctx, after, ttl)
	h.Advance(ttl - time.Millisecond)
	c.take(ctx, before, convcache.Taken)
	h.Advance(time.Millisecond)
	c.take(ctx, at, convcache.Expired)
	c.take(ctx, at, convcache.Consumed)
	h.Advance(time.Millisecond)
	c.take(ctx, after, convcache.Expired)
	c.peek(ctx, convcache.Empty)
	return c.err
}

func checkExpiredBesideFresh(ctx context.Context, h Harness) error {
	c := newClient(h)
	short, long := ticket(1), ticket(2)
	c.put(ctx, long, 2*ttl)
	c.put(ctx, short, ttl)
	h.Advance(ttl)
	c.peek(ctx, convcache.Found, long)
	c.take(ctx, short, convcache.Expired)
	c.take(ctx, long, convcache.Taken)
	return c.err
}

func checkNoTimeLeft(ctx context.Context, h Harness) error {
	c := newClient(h)
	kept := ticket(1)
	c.put(ctx, kept, ttl)
	for _, ttl := range []time.Duration{0, -time.Second} {
		late := kept
		late.ID = convcache.NewTicketID()
		displaced, outcome := h.Store.Put(ctx, c.key, late, ttl)
		if outcome != convcache.Expired || len(displaced) != 0 {
			c.wrong("put for %v: got %v and %d displaced, want %v and 0", ttl, outcome, len(displaced), convcache.Expired)
		}
	}
	c.peek(ctx, convcache.Found, kept)
	return c.err
}

func checkNewestFirst(ctx context.Context, h Harness) error {
	c := newClient(h)
	a, b, d, e := ticket(1), ticket(2), ticket(3), ticket(4)
	c.put(ctx, a, 4*ttl) // the order is of putting, not of deadlines
	c.put(ctx, b, ttl)
	c.put(ctx, d, 3*ttl)
	c.put(ctx, e, 2*ttl)
	c.peek(ctx, convcache.Found, e, d, b, a)
	return c.err
}

func checkFifthBranch(ctx context.Context, h Harness) error {
	c := newClient(h)
	a, b, d, e, f := ticket(1), ticket(2), ticket(3), ticket(4), ticket(5)
	for _, t := range []convcache.Ticket{a, b, d, e} {
		c.put(ctx, t, ttl)
	}
	c.put(ctx, f, ttl, a)
	c.take(ctx, a, convcache.Consumed)
	c.peek(ctx, convcache.Found, f, e, d, b)
	return c.err
}

func checkPutTwice(ctx context.Context, h Harness) error {
	c := newClient(h)
	t := ticket(1)
	c.put(ctx, t, ttl)
	c.put(ctx, t, ttl) // handing the first back would let the caller release blocks that are still offered
	c.peek(ctx, convcache.Found, t)
	c.take(ctx, t, convcache.Taken)
	c.take(ctx, t, convcache.Consumed)
	return c.err
}

func checkExpiredNotDisplaced(ctx context.Context, h Harness) error {
	c := newClient(h)
	a, b, d, e, f := ticket(1), ticket(2), ticket(3), ticket(4), ticket(5)
	c.put(ctx, a, ttl)
	c.put(ctx, b, 2*ttl)
	c.put(ctx, d, 2*ttl)
	c.put(ctx, e, 2*ttl)
	h.Advance(ttl)
	c.put(ctx, f, ttl)
	c.peek(ctx, convcache.Found, f, e, d, b)
	return c.err
}

func checkPutBack(ctx context.Context, h Harness) error {
	c := newClient(h)
	t := ticket(1)
	c.put(ctx, t, ttl)
	const used = ttl / 3
	h.Advance(used)
	taken := c.take(ctx, t, convcache.Taken)
	c.put(ctx, taken, ttl-used)
	back := c.peek(ctx, convcache.Found, t)
	if len(back) == 1 && !back[0].Deadline.Equal(taken.Deadline) {
		c.wrong("put back: deadline: got %v, want %v", back[0].Deadline, taken.Deadline)
	}
	h.Advance(ttl - used - time.Millisecond)
	c.peek(ctx, convcache.Found, t)
	h.Advance(time.Millisecond)
	c.peek(ctx, convcache.Expired)
	return c.err
}

func checkPutBackNoLonger(ctx context.Context, h Harness) error {
	c := newClient(h)
	t := ticket(1)
	c.put(ctx, t, ttl)
	taken := c.take(ctx, t, convcache.Taken)
	c.put(ctx, taken, 10*ttl)
	h.Advance(ttl)
	c.peek(ctx, convcache.Expired)
	gone := c.take(ctx, t, convcache.Expired)
	if displaced, outcome := h.Store.Put(ctx, c.key, taken, ttl); outcome != convcache.Expired || len(displaced) != 0 {
		c.wrong("put back after the deadline: got %v and %d displaced, want %v and 0", outcome, len(displaced), convcache.Expired)
	}
	if gone.Params != nil {
		c.wrong("take after the deadline: got params %q, want none", gone.Params)
	}
	return c.err
}

func checkParamsCopied(ctx context.Context, h Harness) error {
	c := newClient(h)
	t := ticket(1)
	want := bytes.Clone(t.Params)
	c.put(ctx, t, ttl)
	for i := range t.Params {
		t.Params[i] = 'x'
	}
	t.Params = want
	c.take(ctx, t, convcache.Taken)
	return c.err
}

func checkContextEnded(ctx context.Context, h Harness) error {
	c := newClient(h)
	t, late := ticket(1), ticket(1)
	c.put(ctx, t, ttl)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if got, outcome := h.Store.Peek(ended, []convcache.Key{c.key}); outcome != convcache.Unavailable || len(got) != 0 {
		c.wrong("peek with an ended context: got %v and %d branches, want %v and 0", outcome, len(got), convcache.Unavailable)
	}
	if _, outcome := h.Store.Take(ended, c.key, t.ID); outcome != convcache.Unavailable {
		c.wrong("take with an ended context: got %v, want %v", outcome, convcache.Unavailable)
	}
	if got, outcome := h.Store.Put(ended, c.key, late, ttl); outcome != convcache.NotStored || len(got) != 0 {
		c.wrong("put with an ended context: got %v and %d displaced, want %v and 0", outcome, len(got), convcache.NotStored)
	}
	c.peek(ctx, convcache.Found, t)
	c.take(ctx, t, convcache.Taken)
	return c.err
}
