package convcachetest

import (
	"context"
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
	// Now reads the store's clock, and Advance moves it on.
	Now     func() time.Time
	Advance func(time.Duration)
}

// Check is one clause of the contract: what is done to a store, and what it has to answer, in the words of doc.go.
type Check struct{ Name, Steps string }

// Checks returns the whole contract.
func Checks() []Check {
	return []Check{
		{"a ticket put is found and taken whole", "put a, peek a, peek a, take a"},
		{"an unknown conversation is empty", "peek, take a consumed"},
		{"a ticket is taken once", "put a, take a, take a consumed, peek"},
		{"of 32 takers one gets the ticket", "race"},
		{"taking one ticket leaves the others", "put a b c, take b, peek c a, take a, take c"},
		{"taking an unknown ticket leaves the others", "put a, take b consumed, peek a"},
		{"conversations do not see each other", "put a, in 2, peek, take a consumed, put b, in 1, peek a, take a, in 2, peek b"},
		{"a ticket is found until its deadline", "put a, wait 59.999s, peek a, wait 1ms, peek expired, wait 1ms, peek expired"},
		{"a ticket is taken until its deadline", "put a b c, wait 59.999s, take a, wait 1ms, take b expired, take b consumed, wait 1ms, take c expired, peek"},
		{"expired branches are not shown beside others", "put b 2m, put a, wait 1m, peek b, take a expired, take b"},
		{"no time left stores nothing", "chain a 70 1 2, chain b 70 1 2, put a, put b 0s expired, put b -1s expired, peek a"},
		{"branches are shown newest first", "put a 4m, put b, put c 3m, put d 2m, peek d c b a"}, // not by their deadlines
		{"a fifth branch displaces the oldest", "put a b c d, put e over a, take a consumed, peek e d c b"},
		{"a contained chain is superseded", "chain a 70 1 2, chain b 90 1 2, chain c 130 1 2 3 4, put a o, put b over a, put c over b," +
			"take b consumed, peek c o, wait 1m, chain d 170 1 2 3 4 5, put d, peek d"}, // what has expired is not handed back
		{"the same tokens supersede", "chain a 70 1 2, chain b 70 1 2, put a, put b over a, peek b, chain c 20, chain d 20, put c, put d over c, peek d b"},
		{"superseding makes room", "chain d 70 1 2, chain e 100 1 2 3, put a b c d, put e over d, peek e c b a"},
		{"chains that are not contained stay", apart("chain a 100 1 2 3, chain b %s, put a b, peek b a",
			"100 1 2 4", "200 1 2 4 5 6 7", "200 9 2 3 4 5 6", // edited in the third block, and in the first
			"70 1 2", "98 1 2 3", "40 1", "20", // answered again, shorter
			"100 1 2 3 otherwise", "170 1 2 3 coarse", "100 1 2 3 coarse", "0")},
		{"tickets without chain do not supersede", "chain a 0, chain b 0, chain c 100 1 2 3, put a b c, peek c b a"},
		// To hand the first back would let the caller release blocks that are still offered.
		{"the same ticket put twice is there once", "put a a, peek a, take a, take a consumed"},
		{"expired tickets are not handed back", "put a, put b 2m, put c 2m, put d 2m, wait 1m, put e, peek e d c b"},
		{"a put-back keeps id and deadline", "put a, wait 20s, take a, put a 40s, peek a, wait 39.999s, peek a, wait 1ms, peek expired"},
		{"a put-back ends in time", "put a, take a, wait 20s, put a 10m, wait 39.999s, peek a, wait 1ms, peek expired, in 2, put b, take b, wait 20s, put b 10s," +
			"wait 10s, peek expired"},
		{"a put-back cannot live longer", "put a, take a, put a 10m, wait 1m, peek expired, take a expired, put a expired, in 2, put b, take b, wait 1m, put b 10s expired"},
		{"an ended context changes nothing", "put a, ended peek unavailable, ended take a unavailable, ended put b not_stored, peek a, take a"},
		{"a note is found and taken whole", "chain a 70 1 2, back a, put a, peek a, take a, take a consumed, peek"},
		{"a note lives for its own time", "put a, wait 59s, take a, note a, put a, wait 59m59.999s, peek a, wait 1ms, peek expired, take a expired"},
		{"a note takes the place of its ticket alone", "put a b c, back d, put d, peek d c b a, put d, peek d c b a"},
		{"what comes later supersedes a note", "chain a 70 1 2, chain b 100 1 2 3, chain c 100 1 2 3, chain d 130 1 2 3 4, back a b c," +
			"put o, put a, put b over a, put c over b, put d over c, peek d o"},
		{"a late note is not stored beside what has its tokens", apart("chain a 70 1 2, chain b %s, back a, put b, put a superseded, peek b, take b, peek",
			"130 1 2 3 4", "71 1 2", "70 1 2")},
		{"a late note is not stored beside a note of more", "chain a 70 1 2, chain b 40 1, chain c 100 1 2 3, back a b c, put b, put c over b, put a superseded, peek c"},
		{"a late note is stored beside what has not", apart("chain a 70 1 2, chain b %s, back a, put b, put a, peek a b",
			"130 1 3 4 5", "130 2 3 4 5", "70 1 2 otherwise", "170 1 2 3 coarse", "0")},
		{"a note displaces no ticket", "chain a 100 1 2 3, chain b 70 1 2, chain c 130 1 2 3 4, back a, put b, put a, peek a b, put c over a b," +
			"back g, put d e f, put g superseded, peek f e d c, take c, put g, peek g f e d"},
		{"a fifth branch displaces notes like tickets", "back a b c, put d, put a, put e, put b, put c over a, peek c b e d," + // the oldest note, not the oldest branch
			"put f over d, put g over e, put h over b, peek h g f c"},
		{"branches of several keys are shown in the order of the keys", "put a, in 2, put b, in 1, put c, in 3, put d," +
			"peek 1 2 4 3 c a b d, peek 4 3 2 1 d b c a, peek 2 4 b, peek 2 b"},
		{"several keys are shown whole", "put a b c d, in 2, put e f g h, in 3, put i j k l, in 4, put m n o p, peek 1 2 3 4 d c b a h g f e l k j i p o n m"},
		{"several keys without a ticket are empty", "peek 1 2, peek nowhere"},
		{"keys beyond the bound are not looked up", "in 4, put a, in 5, put b, peek 1 2 3 4 5 a"},
		{"expired tickets of one key hide no others", "put a, in 2, put b 2m, wait 1m, peek 1 2 b, peek 2 1 b, peek 1 3 expired, peek 3 1 expired," +
			"wait 1m, peek 2 3 1 expired"},
		{"a ticket is shown and taken under its own key", "chain a 70 1 2, chain b 70 1 2, put a, in 2, put b, peek 1 2 a b, in 1, take b consumed, peek 1 2 a b," +
			"in 2, take b, peek 1 2 a, in 1, take a, peek 1 2"},
		{"an ended context shows none of several keys", "put a, in 2, put b, ended peek 1 2 unavailable, peek 1 2 a b"},
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
