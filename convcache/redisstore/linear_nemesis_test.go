package redisstore_test

import (
	"strings"
	"testing"
)

// nemesis breaks servers and connections while clients are busy, step by step. Each step comes when a third
// of the operations around it have begun. What needs an idle server, such as a replica in step, is done
// at rest, when the clients pause.
type nemesis struct {
	plan  fleetPlan
	steps string // separated by semicolons, each of one or more acts
	rest  string // acts
	// The kind of miss without which the fault has not come to bear.
	op   operation
	miss Outcome
}

func nemeses() map[string]nemesis {
	pair := fleetPlan{replica: true}
	hasty := fleetPlan{patience: fleetHaste}
	// split promotes the replica while its master lives, and has two stores follow it. Then all do, and the old master lives on, unasked.
	const split = "promote 1, point 1 1 2; point 1"
	// back makes the master a replica of its own replica, though stores still ask it, and then master again.
	const back = "promote 1, demote 0; promote 0"
	return map[string]nemesis{
		"kill":                            {fleetPlan{}, "kill 0; restart 0", "", opPut, Unavailable},
		"kill, with tickets of all sizes": {sizes(), "kill 0; restart 0", "", opPut, Unavailable},
		"stop":                            {hasty, "stop 0; continue 0", "", opPut, Unavailable},
		"split brain":                     {pair, split, "replica 0 1, swap", opTake, Fenced},
		"demote and fail back":            {pair, back, "replica 1 0", opTake, Fenced},
		"fail over and back":              {pair, split + "; " + back + "; point 0", "replica 1 0", opTake, Fenced},
		"shutdown with a file":            {fleetPlan{}, "shutdown 0; restart 0", "", opTake, Fenced},
		"crash with an old file":          {fleetPlan{}, "save; kill 0; restart 0", "", opTake, Fenced},
		"flush":                           {fleetPlan{}, "flush 0", "", opTake, Consumed},
		"cut replies":                     {fleetPlan{}, "cutReplies 0, noticeLoss 0, restoreReplies 0; cutReplies 1, noticeLoss 1, restoreReplies 1; cutReplies 2, noticeLoss 2, restoreReplies 2", "", opPut, Unavailable},
		"cut connections":                 {fleetPlan{}, "cut 0, cut 1, cut 2; cut 0, cut 1, cut 2", "", opPut, Unavailable},
		"hang":                            {hasty, "hang 0, hang 1; free 0, free 1", "", opPut, Unavailable},
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
	for name, n := range nemeses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachSeed(t, n.haunt)
		})
	}
}

// haunt has the nemesis strike while clients are busy, until it has come to bear, and in the long form
// again and again, and checks the history.
func (n nemesis) haunt(t *testing.T, seed uint64) {
	t.Helper()
	f := newFleet(t, n.plan)
	clients := f.newClients(seed, true)
	calls, borne := 0, 0
	if soakRedis(t) > 0 {
		calls = nemesisCalls
	}
	for round := 0; f.journal.len() < calls || borne == 0; round++ {
		if borne += n.strike(t, f, clients); borne == 0 && round == nemesisRounds {
			t.Fatalf("the fault has not come to bear in %d rounds", round)
		}
	}
	f.journal.wantUsedOnce(t)
}

// strike is one round of a nemesis, from a fleet at rest to one that shares tickets again. It returns how
// many operations show the fault.
func (n nemesis) strike(t *testing.T, f *fleet, clients []*randomClient) int {
	t.Helper()
	before := f.journal.len()
	for step := range strings.SplitSeq(n.steps, ";") {
		wait := runClients(clients, nemesisSteps)
		f.do(t, step)
		wait()
	}
	if n.rest != "" {
		f.do(t, n.rest)
	}
	f.settle(t, clients...)
	after := f.journal.len()
	runClients(clients, nemesisSteps)()
	if counts := f.journal.tally(after); counts[opTake][Taken] == 0 {
		t.Errorf("after the fault: %v: want some taken", counts)
	}
	return f.journal.tally(before)[n.op][n.miss]
}
