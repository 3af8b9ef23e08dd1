package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"carryover/convcache"
)

// nemesis breaks servers and connections while clients are busy, step by step. Each step comes when a third
// of the operations around it have begun. What needs an idle server, such as a replica in step, is done
// at rest, when the clients pause.
type nemesis struct {
	name  string
	plan  fleetPlan
	steps []func(*testing.T, *fleet)
	rest  func(*testing.T, *fleet) // nil is nothing
	// want is the kind of miss without which the fault has not come to bear.
	want func(tally) int
}

func nemeses() []nemesis {
	pair := fleetPlan{replica: true}
	hasty := fleetPlan{patience: fleetHaste}
	return []nemesis{
		{name: "kill", steps: steps(kill, restart), want: unknowns},
		{name: "kill, with tickets of all sizes", plan: sizes(), steps: steps(kill, restart), want: unknowns},
		{name: "stop", plan: hasty, steps: steps(stop, resume), want: unknowns},
		{name: "split brain", plan: pair, steps: steps(split, repoint), rest: follow, want: fences},
		{name: "demote and fail back", plan: pair, steps: steps(demote, promoteFirst), rest: followFirst, want: fences},
		{name: "fail over and back", plan: pair, steps: steps(split, repoint, demote, promoteFirst, repointFirst), rest: followFirst, want: fences},
		{name: "shutdown with a file", steps: steps(shutdown, restart), want: fences},
		{name: "crash with an old file", steps: steps(save, kill, restart), want: fences},
		{name: "flush", steps: steps(flush), want: consumed},
		{name: "cut replies", steps: steps(cutReplies(0), cutReplies(1), cutReplies(2)), want: unknowns},
		{name: "cut connections", steps: steps(cut, cut), want: unknowns},
		{name: "hang", plan: hasty, steps: steps(hangOn, hangOff), want: unknowns},
	}
}

func steps(all ...func(*testing.T, *fleet)) []func(*testing.T, *fleet) { return all }

func unknowns(c tally) int { return c[opPut][Unavailable] }
func fences(c tally) int   { return c[opTake][Fenced] }
func consumed(c tally) int { return c[opTake][Consumed] }

func kill(_ *testing.T, f *fleet)     { f.servers[0].Kill() }
func restart(_ *testing.T, f *fleet)  { f.servers[0].Restart() }
func stop(_ *testing.T, f *fleet)     { f.servers[0].Stop() }
func resume(_ *testing.T, f *fleet)   { f.servers[0].Continue() }
func shutdown(_ *testing.T, f *fleet) { f.servers[0].Shutdown(true) }
func save(t *testing.T, f *fleet)     { f.saved(t) }
func flush(_ *testing.T, f *fleet)    { f.servers[0].CLI("FLUSHALL") }

// split promotes the replica while its master lives, and has two stores follow it.
func split(_ *testing.T, f *fleet) {
	f.servers[1].Promote()
	f.point(1, 1, 2)
}

// repoint ends a split brain for the stores. The old master lives on, unasked.
func repoint(_ *testing.T, f *fleet) { f.point(1) }

// follow makes the old master a replica of the new one, and that the first in line.
func follow(_ *testing.T, f *fleet) {
	f.servers[0].ReplicaOf(f.servers[1])
	f.servers[0], f.servers[1] = f.servers[1], f.servers[0]
}

// demote makes the master a replica of its own replica, though stores still ask it. It does not wait for
// what the stores of a new master put meanwhile.
func demote(_ *testing.T, f *fleet) {
	f.servers[1].Promote()
	host, port, _ := strings.Cut(f.servers[1].Addr(), ":")
	f.servers[0].CLI("REPLICAOF", host, port)
}

func promoteFirst(_ *testing.T, f *fleet) { f.servers[0].Promote() }
func repointFirst(_ *testing.T, f *fleet) { f.point(0) }
func followFirst(_ *testing.T, f *fleet)  { f.servers[1].ReplicaOf(f.servers[0]) }

// cutReplies loses answers to one store until that has noticed. If its clients are done, it is asked here.
func cutReplies(store int) func(*testing.T, *fleet) {
	return func(t *testing.T, f *fleet) {
		t.Helper()
		f.forwards[store].CutReplies(true)
		awaitFleet(t, "lost answers", func() bool {
			_, outcome := f.take(store, k1, convcache.NewTicketID())
			return outcome == Unavailable
		})
		f.forwards[store].CutReplies(false)
	}
}

func cut(_ *testing.T, f *fleet) {
	for _, forward := range f.forwards {
		forward.Cut()
	}
}

func hangOn(_ *testing.T, f *fleet) {
	for _, forward := range f.forwards[:2] {
		forward.Hang(true)
	}
}

func hangOff(_ *testing.T, f *fleet) {
	for _, forward := range f.forwards[:2] {
		forward.Hang(false)
	}
}

const (
	// nemesisSteps is how many steps clients do around each fault, and after all.
	nemesisSteps = 200
	// nemesisRounds bounds how often a nemesis strikes in the short form. Once is enough if the fault
	// comes to bear: which operation it hits is up to chance.
	nemesisRounds = 5
	// nemesisCalls is the length of a history in the long form.
	nemesisCalls = 20_000
)

func TestRedisLinear_RandomHistoriesUseTicketsOnce(t *testing.T) {
	t.Parallel()
	for _, n := range nemeses() {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			eachSeed(t, n.haunt)
		})
	}
}

// haunt has the nemesis strike while clients are busy, until it has come to bear, and in the long form
// again and again, and checks the history.
func (n nemesis) haunt(t *testing.T, seed uint64) tally {
	t.Helper()
	f := newFleet(t, n.plan)
	clients := f.newClients(seed, true)
	calls, began, rounds, borne := 0, time.Now(), 0, 0
	if soakRedis(t) > 0 {
		calls = nemesisCalls
	}
	for f.journal.len() < calls || borne == 0 && rounds < nemesisRounds {
		rounds++
		borne += n.strike(t, f, clients)
	}
	if borne == 0 {
		t.Errorf("the fault has not come to bear in %d rounds", rounds)
	}
	ran := time.Since(began)
	f.journal.wantUsedOnce(t)
	counts := f.journal.tally(0)
	t.Logf("%s, seed %d: %d rounds in %v, checked in %v: %v", n.name, seed, rounds,
		ran.Round(time.Millisecond), (time.Since(began) - ran).Round(time.Millisecond), counts)
	return counts
}

// strike is one round of a nemesis, from a fleet at rest to one that shares tickets again. It returns how
// many operations show the fault.
func (n nemesis) strike(t *testing.T, f *fleet, clients []*randomClient) int {
	t.Helper()
	before := f.journal.len()
	for _, step := range n.steps {
		wait := runClients(clients, nemesisSteps)
		step(t, f)
		wait()
	}
	if n.rest != nil {
		n.rest(t, f)
	}
	f.settle(t, clients...)
	after := f.journal.len()
	runClients(clients, nemesisSteps)()
	if counts := f.journal.tally(after); counts[opTake][Taken] == 0 {
		t.Errorf("after the fault: %v: want some taken", counts)
	}
	return n.want(f.journal.tally(before))
}
