package redisstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"carryover/convcache"
)

// The specification of a conversation while one Redis answers: Memory. What was put is seen by the next
// look-up and take through any store, Consumed is only what is not there, and a put takes out exactly
// what Memory would. The state is the conversation's tickets, oldest first.

func freshModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return []Ticket(nil) },
		Step: func(state, input, _ any) (bool, any) { return freshStep(state.([]Ticket), input.(call)) },
		Equal: func(a, b any) bool {
			return slices.EqualFunc(a.([]Ticket), b.([]Ticket), sameID)
		},
	}
}

func sameID(a, b Ticket) bool { return a.ID == b.ID }

// freshStep says whether a call may have happened in a state, and what the state is then.
func freshStep(state []Ticket, c call) (bool, []Ticket) {
	named := func(t Ticket) bool { return t.ID == c.ticket.ID }
	switch c.op {
	case opPeek:
		if c.outcome != Found && c.outcome != Empty || (c.outcome == Found) != (len(state) > 0) || len(state) != len(c.branches) {
			return false, nil
		}
		for i, id := range c.branches {
			if state[len(state)-1-i].ID != id {
				return false, nil
			}
		}
		return true, state
	case opTake:
		there := slices.ContainsFunc(state, named)
		switch c.outcome {
		case Taken:
			return there, slices.DeleteFunc(slices.Clone(state), named)
		case Consumed:
			return !there, state
		}
		return false, nil
	}
	displaced, outcome := putToMemory(c.key, state, c.ticket)
	if c.outcome != outcome || !slices.EqualFunc(displaced, c.displaced, sameID) {
		return false, nil
	}
	if outcome != Stored {
		return true, state
	}
	gone := func(t Ticket) bool {
		return named(t) || slices.ContainsFunc(displaced, func(d Ticket) bool { return d.ID == t.ID })
	}
	return true, append(slices.DeleteFunc(slices.Clone(state), gone), c.ticket)
}

// putToMemory returns what Memory takes out when t is put, and what it says. What is there does not displace each
// other, and outdates none: it was put in this order, and is still there.
func putToMemory(k Key, there []Ticket, t Ticket) ([]Ticket, Outcome) {
	now := time.Now()
	m := convcache.NewMemory(convcache.MemoryConfig{Now: func() time.Time { return now }})
	for _, old := range there {
		old.Deadline = time.Time{}
		m.Put(context.Background(), k, old, fleetLife)
	}
	t.Deadline = time.Time{}
	return m.Put(context.Background(), k, t, fleetLife)
}

// stale returns the conversations whose history no order explains.
func (j *journal) stale() []Key {
	j.mu.Lock()
	defer j.mu.Unlock()
	histories := make(map[Key][]porcupine.Operation)
	for _, c := range j.calls {
		histories[c.key] = append(histories[c.key], porcupine.Operation{ClientId: c.store, Input: c, Call: c.began, Return: c.returned})
	}
	var stale []Key
	model := freshModel()
	for k, history := range histories {
		if porcupine.CheckOperationsTimeout(model, history, checkLimit) != porcupine.Ok {
			stale = append(stale, k)
		}
	}
	return stale
}

// freshSteps keeps the operations on one conversation below 2,000, which the search for an order needs.
const (
	freshSteps     = 1000
	freshSoakSteps = 20_000
)

// freshPlan grants operations so much time that none is cut off: here every outcome counts.
func freshPlan() fleetPlan { return fleetPlan{patience: 5 * time.Second} }

func TestRedisLinear_OneServerIsAsFreshAsMemory(t *testing.T) {
	t.Parallel()
	eachSeed(t, func(t *testing.T, seed uint64) {
		t.Helper()
		steps := int64(freshSteps)
		if soakRedis(t) > 0 {
			steps = freshSoakSteps
		}
		f := newFleet(t, freshPlan())
		runClients(f.newClients(seed, false), steps)()
		f.journal.wantUsedOnce(t)
		if stale := f.journal.stale(); len(stale) > 0 {
			t.Errorf("%d of %d conversations can't be explained by Memory", len(stale), fleetKeys)
		}
		if counts := f.journal.tally(0); counts[opTake][Taken] < int(steps)/20 || counts[opTake][Consumed] == 0 || counts[opPut][Superseded] == 0 {
			t.Errorf("%v: want takes that hit, takes that miss and notes that are superseded", counts)
		}
	})
}
