package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/convcachetest"
)

// mutationRounds bounds how often a scenario is run against a mutant that depends on chance.
const mutationRounds = 5

// Parts of the scripts, and what mutants have instead.
const (
	readFence  = `local function fence()`
	oneFence   = `local function fence() if true then return string.rep('0', 40) end`
	byReplid   = `local info = redis.call('INFO', 'replication')`
	byRunID    = `local info = 'master_replid:' .. string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')`
	ownRole    = `if string.find(info, 'role:slave', 1, true) then`
	anyRole    = `if false then`
	heedsEnd   = `<= now() then return {'expired'}`
	heedsNoEnd = `<= 0 then return {'expired'}`
	ownOnly    = `and string.sub(index, 1, 40) == current and expires > present`
	everybodys = `and expires > present`
	newestLast = `return a.order > b.order`
	oldestLast = `return a.order < b.order`
)

// mutation is one way to break the store, with the scenario and the nemesis in which that must come to light: it takes no
// scenario that was made for the purpose.
type mutation struct {
	name, scenario, nemesis string
	wrap                    wrapper
}

func mutations() []mutation {
	return []mutation{
		{"looks and removes in two commands", "many ask at once", "flush", inTwo},
		{"has no fence", "split brain", "split brain", script(readFence, oneFence)},
		{"has no fence", "failover and failback", "", script(readFence, oneFence)},
		{"has no fence", "crash and restart from a file", "crash with an old file", script(readFence, oneFence)},
		{"is fenced by run_id", "failover and failback", "fail over and back", script(byReplid, byRunID)},
		{"is fenced by the fence of another", "a replica that takes writes", "", script(ownRole, anyRole)},
		{"hands back what another master has", "split brain", "", script(ownOnly, everybodys)},
		{"repeats a put of unknown outcome", "replies cut", "cut replies", repeatsPuts},
		{"keeps a copy beside Redis", "many ask at once", "flush", keepsCopy},
		{"keeps what may have been stored", "connections hang", "cut replies", keepsUnknown},
		{"takes without a look at the server's clock", "expired by the server's clock", "", script(heedsEnd, heedsNoEnd)},
		{"takes without a look at its own clock", "applied after the deadline", "", nil}, // for its stores the clock stands
	}
}

func TestRedisLinear_MutantsAreFoundOut(t *testing.T) {
	t.Parallel()
	for _, m := range mutations() {
		s, known := scenarios()[m.scenario]
		n, byChance := nemeses()[m.nemesis]
		if !known || byChance != (m.nemesis != "") {
			t.Fatalf("there is no scenario %q, or no nemesis %q", m.scenario, m.nemesis)
		}
		t.Run(m.name+", "+m.scenario, func(t *testing.T) {
			t.Parallel()
			s.plan.wrap = m.wrap
			if m.wrap == nil {
				s.plan.clock = movesUnseen
			}
			for range mutationRounds {
				f := newFleet(t, s.plan)
				f.do(t, s.steps)
				if len(f.journal.usedTwice()) > 0 {
					return
				}
			}
			t.Errorf("not found out in %d rounds", mutationRounds)
		})
		if !byChance {
			continue
		}
		t.Run(m.name+", by chance, "+m.nemesis, func(t *testing.T) {
			t.Parallel()
			n.plan.wrap = m.wrap
			f := newFleet(t, n.plan)
			close(f.again)
			clients := f.newClients(1, true)
			for range 3 * mutationRounds {
				n.strike(t, f, clients)
				if len(f.journal.usedTwice()) > 0 {
					return
				}
			}
			t.Errorf("not found out in %d rounds", 3*mutationRounds)
		})
	}
}

// TestRedisLinear_StaleMutantsAreFoundOut does so for the comparison with Memory.
func TestRedisLinear_StaleMutantsAreFoundOut(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]wrapper{
		"shows what it saw last":           showsLast,
		"reads one key of several":         readsFirst,
		"mixes keys up":                    mixesKeys,
		"displaces the newest":             script(newestLast, oldestLast),
		"keeps what is contained":          script(`return old.last == string`, `return false and old.last == string`),
		"loses what it displaces":          script(`table.insert(answer, old.index)`, `table.insert(answer, '')`),
		"stores notes whatever is there":   script(`if #asked > 1 then`, `if false then`),
		"lets notes displace tickets":      script(`if new.note and not old.note then`, `if false then`),
		"lets notes push tickets out":      script(`if staying[at].note or not new.note then`, `if true then`),
		"knows no notes":                   script(`k.note = k.note == 1`, `k.note = false`),
		"takes whatever is in the way too": script(`redis.call('HDEL', KEYS[1], i, b, p)`, `redis.call('DEL', KEYS[1])`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for round := range uint64(mutationRounds) {
				plan := freshPlan()
				plan.wrap = wrap
				f := newFleet(t, plan)
				runClients(f.newClients(1+round, false), freshSteps)()
				if len(f.journal.stale()) > 0 {
					return
				}
			}
			t.Errorf("not found out in %d rounds of %d steps", mutationRounds, freshSteps)
		})
	}
}

// script replaces a part of the scripts.
func script(text, by string) wrapper {
	return func(_ *fleet, r *replica) convcachetest.Store {
		return r.mutate(text, by)
	}
}

// mutate returns a replica whose store has other scripts. That a text is not in them any more shows that they were
// changed, and that this test has to be.
func (r *replica) mutate(text, by string) *replica {
	r.t.Helper()
	m, changed := r.store.Mutant(text, by)
	if !changed {
		r.t.Fatalf("the scripts don't contain %q", text)
	}
	other := newReplica(r.t, m, r.cfg)
	runBeside(r.t, other)
	return other
}

// lookThenRemove takes in two commands, the first of which removes nothing.
type lookThenRemove struct {
	convcachetest.Store
	look convcachetest.Store
}

func inTwo(_ *fleet, r *replica) convcachetest.Store {
	return lookThenRemove{Store: r, look: r.mutate(`redis.call('HDEL', KEYS[1], i, b, p)`, ``)}
}

func (s lookThenRemove) Take(ctx context.Context, k Key, id TicketID) (Ticket, Outcome) {
	t, outcome := s.look.Take(ctx, k, id)
	if outcome == Taken {
		s.Store.Take(ctx, k, id)
	}
	return t, outcome
}

// putsAgain sends a put once more whose answer did not come.
type putsAgain struct {
	convcachetest.Store
	again <-chan struct{}
}

func repeatsPuts(f *fleet, r *replica) convcachetest.Store {
	return putsAgain{r, f.again}
}

func (s putsAgain) Put(ctx context.Context, k Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	displaced, outcome := s.Store.Put(ctx, k, t, ttl)
	if outcome != Unavailable {
		return displaced, outcome
	}
	<-s.again
	return s.Store.Put(context.WithoutCancel(ctx), k, t, ttl)
}

// twoHomes keeps tickets in this process as well.
type twoHomes struct {
	convcachetest.Store
	home        *convcache.Memory
	unknownOnly bool // only those whose put has no known outcome
}

func keepsCopy(_ *fleet, r *replica) convcachetest.Store {
	return twoHomes{Store: r, home: convcache.NewMemory(convcache.MemoryConfig{})}
}

func keepsUnknown(_ *fleet, r *replica) convcachetest.Store {
	return twoHomes{Store: r, home: convcache.NewMemory(convcache.MemoryConfig{}), unknownOnly: true}
}

func (s twoHomes) Put(ctx context.Context, k Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	displaced, outcome := s.Store.Put(ctx, k, t, ttl)
	if outcome == Unavailable || outcome == Stored && !s.unknownOnly {
		s.home.Put(context.WithoutCancel(ctx), k, t, ttl)
		outcome = Stored
	}
	return displaced, outcome
}

func (s twoHomes) Take(ctx context.Context, k Key, id TicketID) (Ticket, Outcome) {
	if t, outcome := s.home.Take(ctx, k, id); outcome == Taken {
		return t, outcome
	}
	return s.Store.Take(ctx, k, id)
}

// lastPeek shows what a look-up saw the last time.
type lastPeek struct {
	convcachetest.Store
	last *sync.Map // of []KeyedBranch by key
}

func showsLast(_ *fleet, r *replica) convcachetest.Store {
	return lastPeek{r, new(sync.Map)}
}

func (s lastPeek) Peek(ctx context.Context, keys []Key) ([]KeyedBranch, Outcome) {
	branches, outcome := s.Store.Peek(ctx, keys)
	if last, ok := s.last.Swap(keys[0], branches); ok && len(last.([]KeyedBranch)) > 0 {
		return last.([]KeyedBranch), Found
	}
	return branches, outcome
}

// firstOnly reads one of several keys.
type firstOnly struct{ convcachetest.Store }

func readsFirst(_ *fleet, r *replica) convcachetest.Store { return firstOnly{r} }

func (s firstOnly) Peek(ctx context.Context, keys []Key) ([]KeyedBranch, Outcome) {
	return s.Store.Peek(ctx, keys[:1])
}

// swapsKeys shows the branches of one of several keys under another.
type swapsKeys struct{ convcachetest.Store }

func mixesKeys(_ *fleet, r *replica) convcachetest.Store { return swapsKeys{r} }

func (s swapsKeys) Peek(ctx context.Context, keys []Key) ([]KeyedBranch, Outcome) {
	branches, outcome := s.Store.Peek(ctx, keys)
	for i := range branches {
		branches[i].Key = keys[len(keys)-1]
	}
	return branches, outcome
}
