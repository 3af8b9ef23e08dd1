package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/convcachetest"
	"carryover/convcache/redistest"
)

const (
	fleetStores  = 3
	fleetClients = 8 // of each store
	fleetKeys    = 40
	fleetLife    = time.Minute
	// fleetPatience is what one operation may take: two busy cores under the race detector hold a server up for
	// more than 25 ms at a load of 8, and a command for more than 100 ms before it is sent.
	fleetPatience = time.Second
	// fleetHaste is what it may take in a random history, where servers and connections often stand still.
	fleetHaste = 100 * time.Millisecond
)

// soakRedisVariable is how many seconds are spent in the long form on the random histories of each kind.
const soakRedisVariable = "CARRYOVER_SOAK_REDIS"

// soakRedis returns that time, 0 in the short form.
func soakRedis(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(soakRedisVariable)
	if text == "" {
		return 0
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds <= 0 {
		t.Fatalf("%s: got %q, want seconds", soakRedisVariable, text)
	}
	return time.Duration(seconds) * time.Second
}

// eachSeed runs a random history per seed: one in the short form, else as many as begin within the time.
func eachSeed(t *testing.T, run func(*testing.T, uint64)) {
	t.Helper()
	soak, began := soakRedis(t), time.Now()
	for seed := uint64(1); seed == 1 || time.Since(began) < soak; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { run(t, seed) })
	}
}

// fleet is three stores of three replicas that share a secret, each behind a forwarder of its own, one
// or two servers, and the journal of what clients saw.
type fleet struct {
	servers  []*redistest.Server
	forwards []*redistest.Forwarder
	stores   []convcachetest.Store
	replicas []*replica // behind the stores
	journal  *journal
	patience time.Duration
	advance  func(time.Duration)
	tickets  []Ticket      // that a scenario has put
	again    chan struct{} // closed when a store that repeats a put may do so

	mu   sync.Mutex // guards seen
	seen map[Key][]TicketID
}

// wrapper makes the store that clients see of one that keeps the contract.
type wrapper func(*fleet, *replica) convcachetest.Store

// fleetPlan says what is special of a fleet. The zero plan has one server and real clocks.
type fleetPlan struct {
	replica  bool          // a second server follows the first
	args     []string      // of the servers
	clock    clocks        // real ones where it is zero
	patience time.Duration // for one operation
	maxValue int           // what is larger stays with its store; 0 is the default of stores
	// wrap makes the stores that clients see of those that keep the contract; nil is none.
	wrap wrapper
}

// sizes is the plan of stores that share some tickets of a fleet and keep others: those of two or more blocks.
func sizes() fleetPlan { return fleetPlan{maxValue: 128} }

// clocks says what the stores of a fleet, and its journal, take for the time.
type clocks int

const (
	stands      clocks = 1 + iota // for the stores
	moves                         // when told
	movesUnseen                   // when told, but for the stores it stands
)

// newFleet starts a fleet, whose stores share tickets when it returns.
func newFleet(t *testing.T, plan fleetPlan) *fleet {
	t.Helper()
	c, now, watch := &clock{}, time.Now, time.Now
	stood := now()
	switch plan.clock {
	case stands:
		now = func() time.Time { return stood }
	case moves:
		now, watch = c.now, c.now
	case movesUnseen:
		now, watch = (&clock{}).now, c.now
	}
	if plan.patience == 0 {
		plan.patience = fleetPatience
	}
	f := &fleet{
		journal: newJournal(watch), patience: plan.patience, advance: c.advance,
		again: make(chan struct{}), seen: make(map[Key][]TicketID),
	}
	f.servers = append(f.servers, redistest.Start(t, plan.args...))
	if plan.replica {
		f.servers = append(f.servers, redistest.Start(t, plan.args...))
		f.servers[1].ReplicaOf(f.servers[0])
	}
	secret, err := convcache.RandomSecret()
	must(t, err)
	for range fleetStores {
		forward := redistest.Forward(t, f.servers[0].Addr())
		r := openRedis(t, Config{
			Addresses: []string{forward.Addr()}, Secret: secret, Timeout: max(fleetPatience, plan.patience), Now: now,
			MaxValue: plan.maxValue,
		})
		runBeside(t, r)
		r.check()
		var store convcachetest.Store = r
		if plan.wrap != nil {
			store = plan.wrap(f, r)
		}
		f.forwards = append(f.forwards, forward)
		f.stores = append(f.stores, store)
		f.replicas = append(f.replicas, r)
	}
	return f
}

// runBeside runs a replica's Run until the test ends.
func runBeside(tb testing.TB, r *replica) {
	tb.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) }) // the cause below
	tb.Cleanup(func() {
		cancel(errors.New("the test has ended"))
		running.Wait()
	})
}

// point has stores speak to a server from now on, all of them if none is named.
func (f *fleet) point(server int, stores ...int) {
	if len(stores) == 0 {
		stores = []int{0, 1, 2}
	}
	for _, i := range stores {
		f.forwards[i].Target(f.servers[server].Addr())
	}
}

// times does an operation with the fleet's patience, and notes when it began and returned.
func (f *fleet) times(c *call, operation func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), f.patience)
	defer cancel()
	c.began = f.journal.at()
	operation(ctx)
	c.returned = f.journal.at()
}

// put puts a ticket through one store and writes that down. The ticket is the store's then, or lost.
func (f *fleet) put(store int, k Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	c := call{store: store, op: opPut, key: k, ticket: t}
	f.times(&c, func(ctx context.Context) { c.displaced, c.outcome = f.stores[store].Put(ctx, k, t, ttl) })
	c.until = c.returned + int64(ttl)
	if !t.Deadline.IsZero() {
		c.until = min(c.until, int64(t.Deadline.Sub(f.journal.t0)))
	}
	f.journal.add(c)
	f.remember(k, t.ID)
	return c.displaced, c.outcome
}

// take takes a ticket through one store and writes that down.
func (f *fleet) take(store int, k Key, id TicketID) (Ticket, Outcome) {
	c := call{store: store, op: opTake, key: k}
	f.times(&c, func(ctx context.Context) { c.ticket, c.outcome = f.stores[store].Take(ctx, k, id) })
	taken := c.ticket
	if c.outcome != Taken {
		c.ticket = Ticket{Branch: convcache.Branch{ID: id}}
	}
	f.journal.add(c)
	return taken, c.outcome
}

// peek looks conversations up through one store and writes that down, as a call for each: what different keys have need
// not have been there at one moment.
func (f *fleet) peek(store int, keys ...Key) ([]KeyedBranch, Outcome) {
	var branches []KeyedBranch
	all := call{store: store, op: opPeek}
	f.times(&all, func(ctx context.Context) { branches, all.outcome = f.stores[store].Peek(ctx, keys) })
	for _, k := range keys {
		c := all
		c.key = k
		for _, b := range branches {
			if b.Key == k {
				c.branches = append(c.branches, b.ID)
			}
		}
		if c.outcome == Found && len(c.branches) == 0 {
			c.outcome = Empty
		}
		f.journal.add(c)
	}
	return branches, all.outcome
}

// remember keeps the last ids of a conversation, so that clients also ask for what is gone.
func (f *fleet) remember(k Key, id TicketID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[k] = append(f.seen[k], id)
	if len(f.seen[k]) > 8 {
		f.seen[k] = f.seen[k][1:]
	}
}

// recall returns one of the last ids of a conversation.
func (f *fleet) recall(k Key, rng *rand.Rand) (TicketID, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seen[k]) == 0 {
		return TicketID{}, false
	}
	return f.seen[k][rng.IntN(len(f.seen[k]))], true
}

// settle waits until what is put through any store can be taken through the next one. Clients given are
// busy meanwhile, so that some operations are under way when a store begins to share again.
func (f *fleet) settle(t *testing.T, clients ...*randomClient) {
	t.Helper()
	for i := range f.stores {
		eventually(t, fmt.Sprintf("store %d to share tickets", i), func() bool {
			if len(clients) > 0 {
				defer runClients(clients, int64(len(clients)))()
			}
			return f.shares(i)
		})
	}
}

// shares says whether a ticket that store i puts can be taken through the next.
func (f *fleet) shares(i int) bool {
	probe := someTicket(nil)
	if _, outcome := f.put(i, probeKey, probe, fleetLife); outcome != Stored {
		return false
	}
	_, outcome := f.take((i+1)%len(f.stores), probeKey, probe.ID)
	return outcome == Taken
}
