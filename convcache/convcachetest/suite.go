package convcachetest

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"carryover/convcache"
)

// Store is what a turn needs of a ticket store.
type Store interface {
	// Peek returns the usable branches of at most MaxKeys different keys, those of the first key first and the newest of a
	// key first: Found, Empty, Expired or Unavailable.
	Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome)
	// Take removes and returns exactly one ticket: Taken, Consumed, Expired or Unavailable.
	Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome)
	// Put stores a ticket and returns those it removed: Stored, Expired, Refused, Superseded or Unavailable.
	Put(ctx context.Context, key convcache.Key, t convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome)
}

// Harness is an empty store with room for a hundred tickets, and its clock.
type Harness struct {
	Store Store
	// Advance moves the store's clock on.
	Advance func(time.Duration)
}

// Check is one clause of the contract. Run returns what the store does instead.
type Check struct {
	Name string
	Run  func(context.Context, Harness) error
}

// Checks returns the whole contract.
func Checks() []Check {
	return []Check{
		{"a ticket put is found and taken whole", checkRoundTrip},
		{"an unknown conversation is empty", checkUnknown},
		{"a ticket is taken once", checkTakenOnce},
		{"of 32 takers one gets the ticket", checkConcurrentTakers},
		{"taking one ticket leaves the others", checkTakeLeavesOthers},
		{"taking an unknown ticket leaves the others", checkTakeUnknown},
		{"conversations do not see each other", checkKeysApart},
		{"a ticket is found until its deadline", checkExpiryAtPeek},
		{"a ticket is taken until its deadline", checkExpiryAtTake},
		{"expired branches are not shown beside others", checkExpiredBesideFresh},
		{"no time left stores nothing", checkNoTimeLeft},
		{"branches are shown newest first", checkNewestFirst},
		{"a fifth branch displaces the oldest", checkFifthBranch},
		{"a contained chain is superseded", checkContained},
		{"the same tokens supersede", checkSameTokens},
		{"superseding makes room", checkSupersedingMakesRoom},
		{"chains that are not contained stay", checkNotContained},
		{"tickets without chain do not supersede", checkNoChain},
		{"the same ticket put twice is there once", checkPutTwice},
		{"expired tickets are not handed back", checkExpiredNotDisplaced},
		{"a put-back keeps id and deadline", checkPutBack},
		{"a put-back cannot live longer", checkPutBackNoLonger},
		{"params are the bytes that were put", checkParamsCopied},
		{"an ended context changes nothing", checkContextEnded},
		{"a note is found and taken whole", checkNoteRoundTrip},
		{"a note lives for its own time", checkNoteLife},
		{"a note takes the place of its ticket alone", checkNoteInPlace},
		{"what comes later supersedes a note", checkNoteSuperseded},
		{"a late note is not stored beside what has its tokens", checkLateNote},
		{"a late note is stored beside what has not", checkLateNoteOfMore},
		{"a note displaces no ticket", checkNoteDisplacesNoTicket},
		{"a fifth branch displaces notes like tickets", checkFifthBesideNotes},
		{"branches of several keys are shown in the order of the keys", checkKeysInOrder},
		{"several keys are shown whole", checkKeysFull},
		{"several keys without a ticket are empty", checkKeysMissing},
		{"keys beyond the bound are not looked up", checkKeysBeyond},
		{"expired tickets of one key hide no others", checkKeysExpired},
		{"a ticket is shown and taken under its own key", checkKeysTaken},
		{"an ended context shows none of several keys", checkKeysContextEnded},
	}
}

// Run checks a store against the contract, each check on a store that open has just made.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) {
			if err := check.Run(t.Context(), open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// client drives one conversation of a store and remembers the first surprise, so that a check reads
// as the sequence of calls that it is.
type client struct {
	store Store
	key   convcache.Key
	err   error
}

func newClient(h Harness) *client {
	return &client{store: h.Store, key: convcache.Key{1, 2, 3}}
}

// wrong records the first surprise.
func (c *client) wrong(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// put stores a ticket, which must succeed, and compares what it displaced.
func (c *client) put(ctx context.Context, t convcache.Ticket, ttl time.Duration, displaced ...convcache.Ticket) {
	got, outcome := c.store.Put(ctx, c.key, t, ttl)
	if outcome != convcache.Stored {
		c.wrong("put: outcome: got %v, want %v", outcome, convcache.Stored)
	}
	if len(got) != len(displaced) {
		c.wrong("put: displaced: got %d tickets, want %d", len(got), len(displaced))
		return
	}
	for i := range got {
		if err := sameTicket(got[i], displaced[i]); err != nil {
			c.wrong("put: displaced ticket %d: %w", i, err)
		}
	}
}

// take takes a ticket and compares the outcome, and what was taken with what was put.
func (c *client) take(ctx context.Context, t convcache.Ticket, want convcache.Outcome) convcache.Ticket {
	got, outcome := c.store.Take(ctx, c.key, t.ID)
	switch {
	case outcome != want:
		c.wrong("take: outcome: got %v, want %v", outcome, want)
	case outcome == convcache.Taken:
		if err := sameTicket(got, t); err != nil {
			c.wrong("take: %w", err)
		}
	case got.Params != nil || got.ID != convcache.TicketID{}:
		c.wrong("take: got a ticket with outcome %v", outcome)
	}
	return got
}

// peek looks and compares the outcome and the branches.
func (c *client) peek(ctx context.Context, want convcache.Outcome, tickets ...convcache.Ticket) []convcache.KeyedBranch {
	got, outcome := c.store.Peek(ctx, []convcache.Key{c.key})
	if outcome != want {
		c.wrong("peek: outcome: got %v, want %v", outcome, want)
	}
	if len(got) != len(tickets) {
		c.wrong("peek: got %d branches, want %d", len(got), len(tickets))
		return nil
	}
	for i, b := range got {
		if err := sameBranch(b.Branch, tickets[i].Branch); err != nil {
			c.wrong("peek: branch %d: %w", i, err)
		}
	}
	return got
}

// sameBranch compares all that a look-up must tell. The deadline is the store's to set.
func sameBranch(got, want convcache.Branch) error {
	want.Deadline = got.Deadline
	if len(got.Chain.Blocks)+len(want.Chain.Blocks) == 0 {
		want.Chain.Blocks = got.Chain.Blocks // no blocks, nil or not
	}
	if got.FreshAsOf.Equal(want.FreshAsOf) {
		want.FreshAsOf = got.FreshAsOf // in whichever zone
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("got %+v, want %+v", got, want)
	}
	return nil
}

// sameTicket compares all that a store must keep.
func sameTicket(got, want convcache.Ticket) error {
	if err := sameBranch(got.Branch, want.Branch); err != nil {
		return err
	}
	switch {
	case string(got.Params) != string(want.Params):
		return fmt.Errorf("params: got %q, want %q", got.Params, want.Params)
	case got.EngineID != want.EngineID:
		return fmt.Errorf("engine id: got %q, want %q", got.EngineID, want.EngineID)
	case !got.FreshAsOf.Equal(want.FreshAsOf):
		return fmt.Errorf("caught up: got %v, want %v", got.FreshAsOf, want.FreshAsOf)
	}
	return nil
}

// ticket returns a ticket whose tokens have nothing in common with those of other numbers.
func ticket(n int) convcache.Ticket {
	return convcache.Ticket{
		Branch: convcache.Branch{
			ID:                 convcache.NewTicketID(),
			Outline:            []uint32{uint32(n), 1 << 31, 1},
			Decode:             convcache.Holder{Instance: fmt.Sprintf("decode-%d", n), Incarnation: fmt.Sprintf("1.%de+09", n)},
			SharedPrefixTokens: 3 * n,
			Tokens:             100 + n,
			Chain:              chain(100+n, uint64(n)<<32+1, 1<<63, uint64(n)),
			FreshAsOf:          time.Date(2026, time.November, 21, 12, 0, n, 0, time.UTC),
		},
		Params:   fmt.Appendf(nil, `{ "remote_engine_id":"e%d", "n":1.0,"s":"\u00e9\/" }`, n),
		EngineID: fmt.Sprintf("e%d", n),
	}
}

// chain returns a chain over so many tokens, in blocks of 32 that hold what the numbers stand for. As in any
// chain, each hash covers the blocks before its own.
func chain(tokens int, blocks ...uint64) convcache.Chain {
	c := convcache.Chain{BlockSize: 32, Tokens: tokens}
	covered := uint64(0)
	for _, block := range blocks {
		covered = (covered ^ block) * 0x9e3779b97f4a7c15
		c.Blocks = append(c.Blocks, covered)
	}
	c.Whole = covered*31 + uint64(tokens)
	return c
}
