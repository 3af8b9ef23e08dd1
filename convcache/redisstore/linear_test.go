package redisstore_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"carryover/convcache"
)

// checkLimit bounds the search for an order. The histories here take milliseconds.
const checkLimit = time.Minute

// lateness is by how much a take may seem late: servers count in whole milliseconds.
const lateness = time.Millisecond

// never is when an operation returns whose outcome is not known: it may take effect at any later
// time, or not at all.
const never = math.MaxInt64

// call is one operation on a store as its caller saw it.
type call struct {
	store     int // the one that was asked
	op        operation
	key       Key
	ticket    Ticket // put; of a Take only the ID was given
	displaced []Ticket
	branches  []TicketID
	outcome   Outcome
	began     int64
	returned  int64
	until     int64 // of a put: when the ticket has ended by every clock
}

type operation int

const (
	opPut operation = iota
	opTake
	opPeek
)

// String returns the operation in lower case.
func (o operation) String() string { return [...]string{"put", "take", "peek"}[o] }

// journal is the history of one run.
type journal struct {
	now func() time.Time
	t0  time.Time

	mu      sync.Mutex // guards what follows
	calls   []call
	strange []string // tickets that came back as others than were put
}

func newJournal(now func() time.Time) *journal { return &journal{now: now, t0: now()} }

// at is a moment as histories count it.
func (j *journal) at() int64 { return int64(j.now().Sub(j.t0)) }

// add writes a call down that has just returned.
func (j *journal) add(c call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls = append(j.calls, c)
	for _, t := range c.displaced {
		j.examine(t)
		if c.ticket.HandedBack() && !t.HandedBack() {
			j.strange = append(j.strange, fmt.Sprintf("note %v has displaced ticket %v", c.ticket.ID, t.ID))
		}
	}
	if c.op == opTake && c.outcome == Taken {
		j.examine(c.ticket)
	}
}

// examine compares what a ticket carries with its name. The caller holds mu.
func (j *journal) examine(t Ticket) {
	if name := string(t.Params) + t.Prefill.Incarnation; name != t.ID.String() || t.HandedBack() != (t.Prefill.Incarnation != "") {
		j.strange = append(j.strange, fmt.Sprintf("ticket %v carries %q", t.ID, name))
	}
}

// tally is how often each outcome came, by operation.
type tally map[operation]map[Outcome]int

// probeKey is the conversation of the tickets by which a fleet tries whether its stores share.
var probeKey = key(1 << 20)

// tally counts the calls from the n-th on, but not those of probes.
func (j *journal) tally(n int) tally {
	j.mu.Lock()
	defer j.mu.Unlock()
	counts := tally{opPut: {}, opTake: {}, opPeek: {}}
	for _, c := range j.calls[n:] {
		if c.key != probeKey {
			counts[c.op][c.outcome]++
		}
	}
	return counts
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.calls)
}

// useOnce is what one ticket's puts and takes must look like in some order: every take that got it,
// or put that handed it back as displaced, has a put of its own before it, and begins before the
// ticket's end. Misses are always allowed and therefore left out. A put of unknown outcome may have
// happened at any time after it began, or never; its caller does not hold the ticket any more.
type useOnce struct {
	there bool
	until int64
}

type useOnceInput struct {
	put       bool
	at, until int64
}

func useOnceModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return useOnce{} },
		Step: func(state, input, _ any) (bool, any) {
			s, in := state.(useOnce), input.(useOnceInput)
			if in.put {
				return !s.there, useOnce{there: true, until: in.until}
			}
			return s.there && in.at <= s.until, useOnce{}
		},
	}
}

// usesOfTickets returns the history of each ticket.
func (j *journal) usesOfTickets() map[TicketID][]porcupine.Operation {
	j.mu.Lock()
	defer j.mu.Unlock()
	uses := make(map[TicketID][]porcupine.Operation)
	add := func(c call, id TicketID, in useOnceInput) {
		uses[id] = append(uses[id], porcupine.Operation{ClientId: c.store, Input: in, Call: c.began, Return: c.returned})
	}
	for _, c := range j.calls {
		take := useOnceInput{at: c.began - int64(lateness)}
		switch {
		case c.op == opTake && c.outcome == Taken:
			add(c, c.ticket.ID, take)
		case c.op == opPut && (c.outcome == Stored || c.outcome == Unavailable):
			for _, t := range c.displaced {
				add(c, t.ID, take)
			}
			put := useOnceInput{put: true, until: c.until}
			if c.outcome == Unavailable {
				c.returned = never
			}
			add(c, c.ticket.ID, put)
		}
	}
	return uses
}

// usedTwice returns the tickets whose history has no order, with what was done to them.
func (j *journal) usedTwice() []string {
	var faults []string
	model := useOnceModel()
	for id, history := range j.usesOfTickets() {
		if porcupine.CheckOperationsTimeout(model, history, checkLimit) != porcupine.Ok {
			faults = append(faults, j.story(id))
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return append(faults, j.strange...)
}

// story tells everything that was done to a ticket.
func (j *journal) story(id TicketID) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := fmt.Sprintf("ticket %v:", id)
	for _, c := range j.calls {
		back := slices.ContainsFunc(c.displaced, func(t Ticket) bool { return t.ID == id })
		if back || c.ticket.ID == id {
			text += fmt.Sprintf("\n  %d to %d store %d: %v %v, handed back by it: %t, ends at %d", c.began, c.returned, c.store, c.op, c.outcome, back, c.until)
		}
	}
	return text
}

// wantUsedOnce reports every ticket that was used more often than it was put, or too late.
func (j *journal) wantUsedOnce(t *testing.T) {
	t.Helper()
	faults := j.usedTwice()
	for _, fault := range faults[:min(3, len(faults))] {
		t.Errorf("used more than once, or after its end: %s", fault)
	}
	if len(faults) > 3 {
		t.Errorf("and %d more", len(faults)-3)
	}
}

// TestUseOnce_TellsHistoriesApart shows that the specification accepts and refuses what it says.
func TestUseOnce_TellsHistoriesApart(t *testing.T) {
	id := convcache.NewTicketID()
	whole := Ticket{Branch: convcache.Branch{ID: id}, Params: []byte(id.String())}
	// Operations on the ticket, or of another that displaces it, and what came of them, each from one moment to another; and whether that may be.
	for calls, legal := range map[string]bool{
		"put 0 1 stored, take 2 3 taken":                                                  true,  // put and taken
		"put 0 1 stored, take 2 3 unavailable, take 4 5 consumed, take 6 7 taken":         true,  // missed and taken
		"put 0 1 stored, take 2 9 taken, take 3 8 taken":                                  false, // taken twice
		"put 0 1 stored, take 2 3 taken, put 4 5 stored, take 6 7 taken":                  true,  // taken, put back and taken
		"put 0 1 stored, take 2 3 taken, note 4 5 stored, take 6 7 taken":                 true,  // taken, handed back and its note taken
		"put 0 1 stored, take 2 3 taken, note 4 5 stored, take 6 7 taken, take 8 9 taken": false, // taken, handed back, its note taken twice
		"put 0 1 stored, take 2 3 taken, note 4 5 superseded, take 6 7 taken":             false, // handed back too late, and taken
		"put 0 1 stored, displaceByNote 2 3 stored":                                       false, // displaced by a note
		"put 0 9 stored, take 2 3 taken":                                                  true,  // taken while it is put
		"put 4 5 stored, take 2 3 taken":                                                  false, // taken before it is put
		"put 0 1 stored, displace 2 3 stored, take 4 5 taken":                             false, // handed back and taken
		"put 0 1 unavailable, take 8 9 taken":                                             true,  // of unknown outcome, taken late
		"put 0 1 unavailable, take 6 7 taken, take 8 9 taken":                             false, // of unknown outcome, taken twice
		"put 0 1 expired, take 2 3 taken":                                                 false, // not stored, and taken
		"put 0 1 stored, take 1001000000 1002000000 taken":                                true,  // taken at its end
		"put 0 1 stored, take 1001000001 1002000000 taken":                                false, // taken after its end
	} {
		j := newJournal(time.Now)
		for said := range strings.SplitSeq(calls, ", ") {
			c := call{ticket: whole, until: 1e9}
			var op, outcome string
			_, err := fmt.Sscan(said, &op, &c.began, &c.returned, &outcome)
			must(t, err)
			c.outcome = map[string]Outcome{
				"stored": Stored, "taken": Taken, "unavailable": Unavailable,
				"consumed": Consumed, "superseded": Superseded, "expired": Expired,
			}[outcome]
			switch op {
			case "take":
				c.op = opTake
			case "note":
				c.ticket = someNote(whole)
			case "displace", "displaceByNote":
				c.displaced = []Ticket{whole}
				c.ticket = Ticket{Branch: convcache.Branch{ID: convcache.NewTicketID()}}
				if op == "displaceByNote" {
					c.ticket.Prefill.Instance = "prefill"
				}
			}
			j.add(c)
		}
		if got := len(j.usedTwice()) == 0; got != legal {
			t.Errorf("%s: legal: got %v, want %v", calls, got, legal)
		}
	}
}
