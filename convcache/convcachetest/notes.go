package convcachetest

import (
	"context"
	"fmt"
	"time"

	"carryover/convcache"
)

// handBack puts a ticket, takes it, and returns its note, which is not put yet.
func (c *client) handBack(ctx context.Context, t convcache.Ticket) convcache.Ticket {
	c.put(ctx, t, ttl)
	taken := c.take(ctx, t, convcache.Taken)
	return noteOf(t, taken.Deadline.Add(-ttl))
}

// noteOf returns the note of a ticket.
func noteOf(t convcache.Ticket, now time.Time) convcache.Ticket {
	return t.Note(convcache.Holder{Instance: "prefill of " + t.Decode.Instance, Incarnation: "2" + t.Decode.Incarnation}, now)
}

// putNote puts a note and compares what it displaced.
func (c *client) putNote(ctx context.Context, note convcache.Ticket, displaced ...convcache.Ticket) {
	c.put(ctx, note, convcache.NoteTTL, displaced...)
}

// refuseNote puts a note that is not to be stored.
func (c *client) refuseNote(ctx context.Context, note convcache.Ticket) {
	displaced, outcome := c.store.Put(ctx, c.key, note, convcache.NoteTTL)
	if outcome != convcache.Superseded || len(displaced) != 0 {
		c.wrong("put a note that is of no use: got %v and %d displaced, want %v and 0", outcome, len(displaced), convcache.Superseded)
	}
}

func checkNoteRoundTrip(ctx context.Context, h Harness) error {
	c := newClient(h)
	note := c.handBack(ctx, holding(1, chain(70, 1, 2)))
	c.putNote(ctx, note)
	for _, b := range c.peek(ctx, convcache.Found, note) {
		if !b.HandedBack() || b.Prefill != note.Prefill || b.SharedPrefixTokens != 3 {
			c.wrong("peek: got a branch of %q, start %q, common %d, want the note's", b.Prefill.Instance, b.Prefill.Incarnation, b.SharedPrefixTokens)
		}
	}
	c.take(ctx, note, convcache.Taken)
	c.take(ctx, note, convcache.Consumed)
	c.peek(ctx, convcache.Empty)
	return c.err
}

func checkNoteLife(ctx context.Context, h Harness) error {
	c := newClient(h)
	tk := holding(1, chain(70, 1, 2))
	c.put(ctx, tk, ttl)
	const used = ttl - time.Second
	h.Advance(used)
	taken := c.take(ctx, tk, convcache.Taken)
	note := noteOf(tk, taken.Deadline.Add(used-ttl))
	c.putNote(ctx, note)
	h.Advance(convcache.NoteTTL - time.Millisecond)
	c.peek(ctx, convcache.Found, note)
	h.Advance(time.Millisecond)
	c.peek(ctx, convcache.Expired)
	c.take(ctx, note, convcache.Expired)
	return c.err
}

func checkNoteInPlace(ctx context.Context, h Harness) error {
	c := newClient(h)
	a, b, d := ticket(1), ticket(2), ticket(3)
	for _, t := range []convcache.Ticket{a, b, d} {
		c.put(ctx, t, ttl)
	}
	note := c.handBack(ctx, holding(4, chain(70, 1, 2)))
	c.putNote(ctx, note)
	c.peek(ctx, convcache.Found, note, d, b, a)
	c.putNote(ctx, note) // under the id of what is there
	c.peek(ctx, convcache.Found, note, d, b, a)
	return c.err
}

func checkNoteSuperseded(ctx context.Context, h Harness) error {
	c := newClient(h)
	first := c.handBack(ctx, holding(1, chain(70, 1, 2)))
	longer := c.handBack(ctx, holding(2, chain(100, 1, 2, 3)))
	same := c.handBack(ctx, holding(3, chain(100, 1, 2, 3)))
	other := ticket(4)
	c.put(ctx, other, ttl)
	c.putNote(ctx, first)
	c.putNote(ctx, longer, first)
	c.putNote(ctx, same, longer) // its hand-back was the later one
	next := holding(5, chain(130, 1, 2, 3, 4))
	c.put(ctx, next, ttl, same)
	c.peek(ctx, convcache.Found, next, other)
	return c.err
}

func checkLateNote(ctx context.Context, h Harness) error {
	for n, newer := range []convcache.Ticket{
		holding(2, chain(130, 1, 2, 3, 4)), holding(2, chain(71, 1, 2)), holding(2, chain(70, 1, 2)),
	} {
		c := newClient(h)
		c.key[1] = byte(n)
		late := c.handBack(ctx, holding(1, chain(70, 1, 2)))
		c.put(ctx, newer, ttl)
		c.refuseNote(ctx, late)
		c.peek(ctx, convcache.Found, newer)
		c.take(ctx, newer, convcache.Taken)
		c.peek(ctx, convcache.Empty)
		if c.err != nil {
			return fmt.Errorf("beside chain %+v: %w", newer.Chain, c.err)
		}
	}
	c := newClient(h)
	late := c.handBack(ctx, holding(1, chain(70, 1, 2)))
	small := c.handBack(ctx, holding(2, chain(40, 1)))
	newer := c.handBack(ctx, holding(3, chain(100, 1, 2, 3)))
	c.putNote(ctx, small)
	c.putNote(ctx, newer, small)
	c.refuseNote(ctx, late)
	c.peek(ctx, convcache.Found, newer)
	return c.err
}

func checkLateNoteOfMore(ctx context.Context, h Harness) error {
	otherTail := chain(70, 1, 2)
	otherTail.Whole++
	coarse := chain(170, 1, 2, 3)
	coarse.BlockSize = 48
	for n, later := range []convcache.Chain{
		chain(130, 1, 3, 4, 5), // edited in the second block
		chain(130, 2, 3, 4, 5), // and in the first
		otherTail, coarse, {},
	} {
		c := newClient(h)
		c.key[1] = byte(n)
		newer := holding(2, later)
		late := c.handBack(ctx, holding(1, chain(70, 1, 2)))
		c.put(ctx, newer, ttl)
		c.putNote(ctx, late)
		c.peek(ctx, convcache.Found, late, newer)
		if c.err != nil {
			return fmt.Errorf("beside chain %+v: %w", newer.Chain, c.err)
		}
	}
	return nil
}

func checkNoteDisplacesNoTicket(ctx context.Context, h Harness) error {
	c := newClient(h)
	note := c.handBack(ctx, holding(1, chain(100, 1, 2, 3)))
	less := holding(2, chain(70, 1, 2)) // which decode certainly has
	c.put(ctx, less, ttl)
	c.putNote(ctx, note)
	c.peek(ctx, convcache.Found, note, less)
	next := holding(3, chain(130, 1, 2, 3, 4))
	c.put(ctx, next, ttl, note, less)

	late := c.handBack(ctx, ticket(8))
	a, b, d := ticket(4), ticket(5), ticket(6)
	for _, t := range []convcache.Ticket{a, b, d} {
		c.put(ctx, t, ttl)
	}
	c.refuseNote(ctx, late) // there is no room
	c.peek(ctx, convcache.Found, d, b, a, next)
	c.take(ctx, next, convcache.Taken)
	c.putNote(ctx, late)
	c.peek(ctx, convcache.Found, late, d, b, a)
	return c.err
}

func checkFifthBesideNotes(ctx context.Context, h Harness) error {
	c := newClient(h)
	older, newer := c.handBack(ctx, ticket(1)), c.handBack(ctx, ticket(2))
	last := c.handBack(ctx, ticket(3))
	a, b, d := ticket(4), ticket(5), ticket(6)
	c.put(ctx, a, ttl)
	c.putNote(ctx, older)
	c.put(ctx, b, ttl)
	c.putNote(ctx, newer)
	c.putNote(ctx, last, older) // the oldest note, not the oldest branch
	c.peek(ctx, convcache.Found, last, newer, b, a)
	c.put(ctx, d, ttl, a)
	e, f := ticket(7), ticket(8)
	c.put(ctx, e, ttl, b)
	c.put(ctx, f, ttl, newer)
	c.peek(ctx, convcache.Found, f, e, d, last)
	return c.err
}
