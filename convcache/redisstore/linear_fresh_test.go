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

// freshStep says whether a call may have happened in a state, and what the state is then. What is there does not displace each
// other, and outdates none: it was put in this order, and is still there.
func freshStep(state []Ticket, c call) (bool, []Ticket) {
	ctx, now := context.Background(), time.Now()
	m := convcache.NewMemory(convcache.MemoryConfig{Now: func() time.Time { return now }})
	put := func(t Ticket) ([]Ticket, Outcome) {
		t.Deadline = time.Time{}
		return m.Put(ctx, c.key, t, fleetLife)
	}
	for _, old := range state {
		put(old)
	}
	var displaced []Ticket
	var outcome Outcome
	shown, was := m.Peek(ctx, []Key{c.key})
	switch c.op {
	case opPeek:
		if outcome = was; !slices.EqualFunc(shown, c.branches, func(b KeyedBranch, id TicketID) bool { return b.ID == id }) {
			return false, nil
		}
	case opTake:
		_, outcome = m.Take(ctx, c.key, c.ticket.ID)
	default:
		displaced, outcome = put(c.ticket)
		state = append([]Ticket{c.ticket}, state...) // found first
	}
	if outcome != c.outcome || !slices.EqualFunc(displaced, c.displaced, sameID) {
		return false, nil
	}
	var next []Ticket
	left, _ := m.Peek(ctx, []Key{c.key})
	for _, b := range slices.Backward(left) {
		next = append(next, state[slices.IndexFunc(state, func(t Ticket) bool { return t.ID == b.ID })])
	}
	return true, next
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
