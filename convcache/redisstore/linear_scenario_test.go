package redisstore_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// scenario is one fault in few steps, after which every store is asked for every ticket. Its steps do
// not judge, so that they also run against stores that break the contract: the journal does.
type scenario struct {
	name  string
	plan  func() fleetPlan
	steps func(*testing.T, *fleet)
	// What the store has to do, so that none passes without a fault: takes that got a ticket, takes
	// that were fenced, and expired, and puts of unknown outcome.
	taken, fenced, expired, unknown int
}

// k1 is the conversation of all scenarios.
var k1 = key(1)

func scenarios() []scenario {
	alone := func() fleetPlan { return fleetPlan{} }
	// In scenarios where no operation waits in vain, each has all the time that a busy machine needs.
	unhurried := func() fleetPlan { return fleetPlan{patience: 10 * time.Second} }
	pair := func() fleetPlan { return fleetPlan{replica: true, patience: 10 * time.Second} }
	writable := func() fleetPlan {
		return fleetPlan{replica: true, args: []string{"--replica-read-only", "no"}, patience: 10 * time.Second}
	}
	// Without "always" Redis answers before it has logged, for 2 s at most, while the disk is busy with the log.
	logged := func() fleetPlan {
		return fleetPlan{args: []string{"--appendonly", "yes", "--appendfsync", "always"}, patience: 10 * time.Second}
	}
	return []scenario{
		{name: "many ask at once", plan: unhurried, steps: manyAskAtOnce, taken: 50},
		{name: "kill and restart without a file", plan: alone, steps: killAndRestart, taken: 1, unknown: 5},
		{name: "stop and continue", plan: alone, steps: stopAndContinue, taken: 1, unknown: 1},
		{name: "split brain", plan: pair, steps: splitBrain, taken: 4, fenced: 2},
		{name: "a replica that takes writes", plan: writable, steps: writableReplica, taken: 2},
		{name: "failover and failback", plan: pair, steps: failback, taken: 1, fenced: 2},
		{name: "failover after a crash", plan: pair, steps: failover, taken: 1, fenced: 2},
		{name: "crash and restart from a file", plan: unhurried, steps: restartFromOldFile, taken: 1, fenced: 2},
		{name: "crash and restart from a log", plan: logged, steps: restartFromLog, taken: 1, fenced: 1},
		{name: "shutdown and restart from a file", plan: unhurried, steps: restartFromNewFile, taken: 1, fenced: 1},
		{name: "everything flushed", plan: unhurried, steps: flushed, taken: 1},
		{name: "replies cut", plan: alone, steps: repliesCut, taken: 1, unknown: 1},
		{name: "connections hang", plan: alone, steps: hang, taken: 1, unknown: 1},
		{name: "expired by the server's clock", plan: stoodClock, steps: expiredThere, taken: 1, expired: 1},
		{name: "large tickets stay with their store", plan: sizes, steps: largeStay, taken: 3},
		{name: "applied after the deadline", plan: movingClock(true), steps: appliedLate, expired: 1, unknown: 1},
	}
}

// stoodClock is the plan of stores whose own clocks stand.
func stoodClock() fleetPlan {
	now := time.Now()
	return fleetPlan{clock: func() time.Time { return now }}
}

// movingClock is the plan of a journal whose clock moves when told. The stores look at the same clock, or,
// if it is not heeded, at one that stands.
func movingClock(heeded bool) func() fleetPlan {
	return func() fleetPlan {
		c := &clock{}
		plan := fleetPlan{watch: c.now, clock: c.now, advance: c.advance}
		if !heeded {
			stood := c.now()
			plan.clock = func() time.Time { return stood }
		}
		return plan
	}
}

func TestRedisLinear_EachFaultLeavesOneUse(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, s.plan())
			s.steps(t, f)
			f.journal.wantUsedOnce(t)
			counts := f.journal.tally(0)
			got := [...]int{counts[opTake][Taken], counts[opTake][Fenced], counts[opTake][Expired], counts[opPut][Unavailable]}
			if want := [...]int{s.taken, s.fenced, s.expired, s.unknown}; got != want {
				t.Errorf("taken, fenced, expired and puts of unknown outcome: got %v, want %v", got, want)
			}
		})
	}
}

// putSome puts tickets through store 0.
func (f *fleet) putSome(n int) []Ticket {
	tickets := make([]Ticket, n)
	for i := range tickets {
		tickets[i] = someTicket(nil)
		f.put(0, k1, tickets[i], fleetLife)
	}
	return tickets
}

// takeEverywhere asks every store for every ticket, the last store first.
func (f *fleet) takeEverywhere(tickets ...Ticket) {
	for _, t := range tickets {
		for i := range f.stores {
			f.take(len(f.stores)-1-i, k1, t.ID)
		}
	}
}

func manyAskAtOnce(_ *testing.T, f *fleet) {
	for range 50 {
		ticket := f.putSome(1)[0]
		start := make(chan struct{})
		var asking sync.WaitGroup
		for i := range 2 * fleetStores {
			asking.Go(func() {
				<-start
				f.take(i%fleetStores, k1, ticket.ID)
			})
		}
		close(start)
		asking.Wait()
	}
}

func killAndRestart(_ *testing.T, f *fleet) {
	before := f.putSome(3)
	f.servers[0].Kill()
	// Five puts fail, then the breaker opens and the sixth stays with store 0.
	during := f.putSome(6)
	f.servers[0].Restart()
	f.takeEverywhere(append(before, during...)...)
}

func stopAndContinue(t *testing.T, f *fleet) {
	before := f.putSome(1)
	f.stop(t, 0, 1)
	f.take(1, k1, before[0].ID)
	during := f.putSome(1)
	f.servers[0].Continue()
	f.awaitShown(t)
	f.takeEverywhere(append(before, during...)...)
}

// awaitShown waits until store 1 sees anything, be it expired.
func (f *fleet) awaitShown(t *testing.T) {
	t.Helper()
	awaitFleet(t, "a put to be applied", func() bool {
		_, outcome := f.peek(1, k1)
		return outcome == Found || outcome == Expired
	})
}

// inStep waits until the replica has what its master has.
func (f *fleet) inStep() { f.servers[1].ReplicaOf(f.servers[0]) }

func splitBrain(_ *testing.T, f *fleet) {
	before := f.putSome(4)
	f.inStep()
	f.servers[1].Promote()
	f.point(1, 1, 2)
	f.takeEverywhere(before[:2]...) // on the new master first, where they are fenced
	akin := someTicket(nil)
	akin.Chain = before[2].Chain
	f.put(1, k1, akin, fleetLife) // displaces there what belongs to the old master, and may not hand it back
	f.takeEverywhere(before[2:]...)
}

func writableReplica(_ *testing.T, f *fleet) {
	before := f.putSome(2)
	f.inStep()
	f.point(1, 1)
	f.take(1, k1, before[0].ID) // it has no fence of its own
	f.takeEverywhere(before...)
}

func failback(_ *testing.T, f *fleet) {
	before := f.putSome(2)
	f.inStep()
	f.servers[1].Promote()
	f.take(0, k1, before[0].ID) // the new master does not hear of it
	f.servers[0].ReplicaOf(f.servers[1])
	f.takeEverywhere(before[1]) // a replica takes nothing
	f.servers[0].Promote()
	f.takeEverywhere(before...)
}

func failover(t *testing.T, f *fleet) {
	before := f.putSome(2)
	f.inStep()
	f.take(0, k1, before[0].ID)
	f.inStep()
	f.servers[0].Kill()
	f.servers[1].Promote()
	f.point(1)
	f.settle(t)
	f.takeEverywhere(before...) // one is gone, one fenced
	after := f.putSome(1)
	f.servers[0].Restart()
	f.servers[0].ReplicaOf(f.servers[1])
	f.servers[1].Kill()
	f.servers[0].Promote()
	f.point(0)
	f.settle(t)
	f.takeEverywhere(after...)
}

// saved has the server write its file in the background, and waits.
func (f *fleet) saved(t *testing.T) {
	t.Helper()
	f.servers[0].CLI("BGSAVE")
	awaitFleet(t, "a saved file", func() bool {
		info := f.servers[0].CLI("INFO", "persistence")
		return strings.Contains(info, "rdb_bgsave_in_progress:0") && strings.Contains(info, "rdb_last_bgsave_status:ok")
	})
}

func restartFromOldFile(t *testing.T, f *fleet) {
	before := f.putSome(2)
	f.saved(t)
	f.take(0, k1, before[0].ID)
	f.servers[0].Kill()
	f.servers[0].Restart()
	f.settle(t)
	f.takeEverywhere(before...)
}

func restartFromLog(t *testing.T, f *fleet) {
	before := f.putSome(2)
	f.take(0, k1, before[0].ID)
	f.servers[0].Kill()
	f.servers[0].Restart()
	f.settle(t)
	f.takeEverywhere(before...)
}

func restartFromNewFile(t *testing.T, f *fleet) {
	before := f.putSome(2)
	f.take(0, k1, before[0].ID)
	f.servers[0].Shutdown(true)
	f.servers[0].Restart()
	f.settle(t)
	f.takeEverywhere(before...)
}

func flushed(_ *testing.T, f *fleet) {
	before := f.putSome(2)
	f.take(0, k1, before[0].ID)
	f.servers[0].CLI("FLUSHALL")
	f.takeEverywhere(before...)
}

func repliesCut(t *testing.T, f *fleet) {
	before := f.putSome(1)
	f.greeted(t, 0, 1)
	f.forwards[1].CutReplies(true)
	f.take(1, k1, before[0].ID) // removed, and lost
	f.forwards[1].CutReplies(false)

	ticket := someTicket(nil)
	f.forwards[0].CutReplies(true)
	cuts := f.forwards[0].Cuts()
	putting := make(chan struct{})
	go func() {
		defer close(putting)
		f.put(0, k1, ticket, fleetLife)
	}()
	awaitFleet(t, "another store to take what was put", func() bool {
		_, outcome := f.take(2, k1, ticket.ID)
		return outcome == Taken
	})
	awaitFleet(t, "the answer to the put to be lost", func() bool { return f.forwards[0].Cuts() > cuts })
	f.forwards[0].CutReplies(false)
	close(f.again)
	<-putting
	f.takeEverywhere(append(before, ticket)...)
}

func hang(t *testing.T, f *fleet) {
	f.greeted(t, 0)
	f.forwards[0].Hang(true)
	during := f.putSome(1)
	f.take(1, k1, during[0].ID)
	f.forwards[0].Hang(false)
	f.awaitShown(t)
	f.takeEverywhere(during...)
}

// serverTime is the server's clock in microseconds.
func (f *fleet) serverTime(t *testing.T) int64 {
	t.Helper()
	seconds, micros, _ := strings.Cut(f.servers[0].CLI("TIME"), "\n")
	s, err := strconv.ParseInt(seconds, 10, 64)
	must(t, err)
	us, err := strconv.ParseInt(micros, 10, 64)
	must(t, err)
	return 1_000_000*s + us
}

func expiredThere(t *testing.T, f *fleet) {
	const life = time.Second // two puts on a busy machine
	short := someTicket(nil)
	f.put(0, k1, short, life)
	long := f.putSome(1)
	end := f.serverTime(t) + (life + 2*lateness).Microseconds()
	awaitFleet(t, "the server's clock to pass the deadline", func() bool { return f.serverTime(t) > end })
	f.takeEverywhere(short, long[0])
}

func appliedLate(t *testing.T, f *fleet) {
	f.stop(t, 0)
	during := f.putSome(1)
	f.advance(fleetLife + time.Second)
	f.servers[0].Continue()
	f.awaitShown(t)
	f.takeEverywhere(during...)
}
