package redisstore_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/convcache"
)

// scenario is one fault in few steps, after which every store is asked for every ticket. Its steps do
// not judge, so that they also run against stores that break the contract: the journal does.
type scenario struct {
	plan  fleetPlan
	steps string // acts, separated by commas
	// What the store has to do, so that none passes without a fault: takes that got a ticket, takes
	// that were fenced, and expired, and puts of unknown outcome.
	taken, fenced, expired, unknown int
}

// The first of these is the conversation of all scenarios.
var k1, k2, k3 = key(1), key(2), key(3)

func scenarios() map[string]scenario {
	// In scenarios where no operation waits in vain, each has all the time that a busy machine needs.
	unhurried := fleetPlan{patience: 10 * time.Second}
	pair := fleetPlan{replica: true, patience: 10 * time.Second}
	writable := fleetPlan{replica: true, args: []string{"--replica-read-only", "no"}, patience: 10 * time.Second}
	// Without "always" Redis answers before it has logged, for 2 s at most, while the disk is busy with the log.
	logged := fleetPlan{args: []string{"--appendonly", "yes", "--appendfsync", "always"}, patience: 10 * time.Second}
	return map[string]scenario{
		"many ask at once": {plan: unhurried, steps: "manyAskAtOnce", taken: 50},
		// Five puts fail, then the breaker opens and the sixth stays with store 0.
		"kill and restart without a file": {steps: "put 3, kill 0, put 6, restart 0, all 0", taken: 1, unknown: 5},
		"stop and continue":               {steps: "put 1, greet 0, greet 1, stop 0, take 1 0, put 1, continue 0, shown, all 0", taken: 1, unknown: 1},
		// On the new master first, where they are fenced. What is put there displaces what belongs to the old master, and may not hand it back.
		"split brain":                 {plan: pair, steps: "put 4, replica 1 0, promote 1, point 1 1 2, all 0 2, akin 1 2, all 2 4", taken: 4, fenced: 2},
		"a replica that takes writes": {plan: writable, steps: "put 2, replica 1 0, point 1 1, take 1 0, all 0", taken: 2}, // it has no fence of its own
		// The new master does not hear of the first take, and a replica takes nothing.
		"failover and failback": {plan: pair, steps: "put 2, replica 1 0, promote 1, take 0 0, replica 0 1, all 1, promote 0, all 0", taken: 1, fenced: 2},
		"failover after a crash": {plan: pair, steps: "put 2, replica 1 0, take 0 0, replica 1 0, kill 0, promote 1, point 1, settle, all 0," + // one is gone, one fenced
			"put 1, restart 0, replica 0 1, kill 1, promote 0, point 0, settle, all 2", taken: 1, fenced: 2},
		"crash and restart from a file":       {plan: unhurried, steps: "put 2, save, take 0 0, kill 0, restart 0, settle, all 0", taken: 1, fenced: 2},
		"crash and restart from a log":        {plan: logged, steps: "put 2, take 0 0, kill 0, restart 0, settle, all 0", taken: 1, fenced: 1},
		"shutdown and restart from a file":    {plan: unhurried, steps: "put 2, take 0 0, shutdown 0, restart 0, settle, all 0", taken: 1, fenced: 1},
		"everything flushed":                  {plan: unhurried, steps: "put 2, take 0 0, flush 0, all 0", taken: 1},
		"replies cut":                         {steps: "put 1, greet 0, greet 1, cutReplies 1, take 1 0, restoreReplies 1, takeBeforeTheAnswer, all 0", taken: 1, unknown: 1},
		"connections hang":                    {steps: "greet 0, hang 0, put 1, take 1 0, free 0, shown, all 0", taken: 1, unknown: 1},
		"expired by the server's clock":       {plan: fleetPlan{clock: stands}, steps: "putShort, put 1, pass, all 0", taken: 1, expired: 1},
		"large tickets stay with their store": {plan: sizes(), steps: "put 1, putLarge, putLarge, all 0 2, kill 0, all 2", taken: 3},
		"applied after the deadline":          {plan: fleetPlan{clock: moves}, steps: "greet 0, stop 0, put 1, advance, continue 0, shown, all 0", expired: 1, unknown: 1},
	}
}

func TestRedisLinear_EachFaultLeavesOneUse(t *testing.T) {
	t.Parallel()
	for name, s := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, s.plan)
			f.do(t, s.steps)
			f.journal.wantUsedOnce(t)
			counts := f.journal.tally(0)
			got := [...]int{counts[opTake][Taken], counts[opTake][Fenced], counts[opTake][Expired], counts[opPut][Unavailable]}
			if want := [...]int{s.taken, s.fenced, s.expired, s.unknown}; got != want {
				t.Errorf("taken, fenced, expired and puts of unknown outcome: got %v, want %v", got, want)
			}
		})
	}
}

// do has a fleet act. Each act is a word and numbers: of a server, of a store, of the tickets that were put, in their order.
func (f *fleet) do(t *testing.T, steps string) {
	t.Helper()
	for step := range strings.SplitSeq(steps, ",") {
		words := strings.Fields(step)
		var numbers []int
		for _, word := range words[1:] {
			n, err := strconv.Atoi(word)
			must(t, err)
			numbers = append(numbers, n)
		}
		f.act(t, words[0], numbers...)
	}
}

func (f *fleet) act(t *testing.T, what string, n ...int) {
	t.Helper()
	first := append(n, 0)[0]
	server, way := f.servers[first%len(f.servers)], f.forwards[first%fleetStores]
	switch what {
	case "kill":
		server.Kill()
	case "restart":
		server.Restart()
	case "stop":
		server.Stop()
	case "continue":
		server.Continue()
	case "shutdown":
		server.Shutdown()
	case "flush":
		server.CLI("FLUSHALL")
	case "save":
		f.save(t)
	case "promote":
		server.Promote()
	case "replica":
		server.ReplicaOf(f.servers[n[1]]) // and waits until it is in step
	case "demote": // does not wait for what the stores of a new master put meanwhile
		host, port, _ := strings.Cut(f.servers[1].Addr(), ":")
		server.CLI("REPLICAOF", host, port)
	case "swap":
		f.servers[0], f.servers[1] = f.servers[1], server
	case "point":
		f.point(first, n[1:]...)
	case "greet":
		greet(t, clientOf(t, f.replicas[first], k1))
	case "hang":
		way.Hang(true)
	case "free":
		way.Hang(false)
	case "cut":
		way.Cut()
	case "cutReplies":
		way.CutReplies(true)
	case "restoreReplies":
		way.CutReplies(false)
	case "noticeLoss": // if the clients of the store are done, it is asked here
		eventually(t, "lost answers", func() bool {
			_, outcome := f.take(first, k1, convcache.NewTicketID())
			return outcome == Unavailable
		})
	case "put":
		for range first {
			f.putNext(someTicket(nil), fleetLife)
		}
	case "putShort":
		f.putNext(someTicket(nil), shortLife)
	case "putLarge":
		f.putNext(largeTicket(len(f.tickets)), fleetLife)
	case "akin":
		akin := someTicket(nil)
		akin.Chain = f.tickets[n[1]].Chain
		f.put(first, k1, akin, fleetLife)
	case "take":
		f.take(first, k1, f.tickets[n[1]].ID)
	case "all":
		f.takeEverywhere(first, append(n, len(f.tickets))[1])
	case "settle":
		f.settle(t)
	case "advance":
		f.advance(fleetLife + time.Second)
	case "pass":
		f.passShortLife(t)
	case "shown": // store 1 sees anything, be it expired
		eventually(t, "a put to be applied", func() bool {
			_, outcome := f.peek(1, k1)
			return outcome == Found || outcome == Expired
		})
	case "manyAskAtOnce":
		f.manyAskAtOnce()
	case "takeBeforeTheAnswer":
		f.takeBeforeTheAnswer(t)
	default:
		t.Fatalf("there is no act %q", what)
	}
}

// putNext puts a ticket of the scenario.
func (f *fleet) putNext(tk Ticket, life time.Duration) {
	f.tickets = append(f.tickets, tk)
	f.put(0, k1, tk, life)
}

// takeEverywhere asks every store for some of the tickets, the last store first.
func (f *fleet) takeEverywhere(from, to int) {
	for _, tk := range f.tickets[from:to] {
		for i := range f.stores {
			f.take(len(f.stores)-1-i, k1, tk.ID)
		}
	}
}

func (f *fleet) manyAskAtOnce() {
	for range 50 {
		tk := someTicket(nil)
		f.put(0, k1, tk, fleetLife)
		start := make(chan struct{})
		var asking sync.WaitGroup
		for i := range 2 * fleetStores {
			asking.Go(func() {
				<-start
				f.take(i%fleetStores, k1, tk.ID)
			})
		}
		close(start)
		asking.Wait()
	}
}

// save has the server write its file in the background, and waits.
func (f *fleet) save(t *testing.T) {
	t.Helper()
	f.servers[0].CLI("BGSAVE")
	eventually(t, "a saved file", func() bool {
		info := f.servers[0].CLI("INFO", "persistence")
		return strings.Contains(info, "rdb_bgsave_in_progress:0") && strings.Contains(info, "rdb_last_bgsave_status:ok")
	})
}

// takeBeforeTheAnswer has a store take a ticket while the answer to its put is lost.
func (f *fleet) takeBeforeTheAnswer(t *testing.T) {
	t.Helper()
	f.forwards[0].CutReplies(true)
	cuts, tk := f.forwards[0].Cuts(), someTicket(nil)
	putting := make(chan struct{})
	go func() {
		defer close(putting)
		f.putNext(tk, fleetLife)
	}()
	eventually(t, "another store to take what was put", func() bool {
		_, outcome := f.take(2, k1, tk.ID)
		return outcome == Taken
	})
	eventually(t, "the answer to the put to be lost", func() bool { return f.forwards[0].Cuts() > cuts })
	f.forwards[0].CutReplies(false)
	close(f.again)
	<-putting
}

// shortLife is long enough for two puts on a busy machine.
const shortLife = time.Second

// passShortLife waits until what has a short life has ended by the server's clock.
func (f *fleet) passShortLife(t *testing.T) {
	t.Helper()
	now := func() time.Time {
		now, err := f.replicas[0].Client().Time(t.Context()).Result()
		must(t, err)
		return now
	}
	end := now().Add(shortLife + 2*lateness)
	eventually(t, "the server's clock to pass the deadline", func() bool { return now().After(end) })
}
