package pins

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/clocktest"
	"carryover/server/record"
)

// The package comment has the table of the code.
func TestStates_AreTheTableOfThePackageComment(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^//\t(\S+) {2,}(.+)$`).FindAllStringSubmatch(string(text), -1) {
		table[row[1]] = row[2]
	}
	if len(table) != int(states) {
		t.Errorf("the package comment has %d states, the code %d", len(table), states)
	}
	for now, next := range follow {
		var names []string
		for _, n := range next {
			names = append(names, n.String())
		}
		if want := strings.Join(names, ", "); table[state(now).String()] != want && (want != "" || table[state(now).String()] != "the end") {
			t.Errorf("%s: the package comment says %q, the code %q", state(now), table[state(now).String()], want)
		}
	}
}

// A change that the table does not have is a fault, and leaves the blocks to decode's TTL.
func TestMove_ChangesAsTheTableSays(t *testing.T) {
	for now := range follow {
		for next := claimed; next < states; next++ {
			if state(now) >= freed {
				continue // such a pin is gone
			}
			r := alone(t)
			var log strings.Builder
			r.strict, r.cfg.Logger = false, slog.New(slog.NewTextHandler(&log, nil))
			n := r.add(&pin{id: convcache.TicketID{1}, holder: r.holder(r.decode), tokens: 10, freshAsOf: r.now(), deadline: r.now().Add(time.Minute)})
			if n.state = state(now); n.state != unseen {
				n.holder.tokens[now] = 10
			}
			r.move(n, next)
			want := next
			if may := slices.Contains(follow[now], next); !may {
				want = lost
			}
			if fault := strings.Contains(log.String(), "from="+state(now).String()+" to="+next.String()); n.state != want || fault != !slices.Contains(follow[now], next) {
				t.Errorf("%s to %s: it is %s, logged %q", state(now), next, n.state, log.String())
			}
			if pinned, want := r.Pinned(r.decode.Engine()), map[bool]int{true: 10}[want < freed]; pinned != want {
				t.Errorf("%s to %s: %d tokens are pinned, want %d", state(now), next, pinned, want)
			}
		}
	}
}

func TestPins_CountInWholeBlocks(t *testing.T) {
	r := alone(t)
	first := r.put(1, 11, "")
	if r.put(1, 20, ""); r.Pinned(r.decode.Engine()) != 40 || r.Counts().Tickets != 2 {
		t.Errorf("%d tokens, want 40", r.Pinned(r.decode.Engine()))
	}
	taken, _ := r.take(t.Context(), convcache.Key{1}, first.ID, "m")
	if r.Counts().Tickets != 1 || r.Pinned(r.decode.Engine()) != 40 {
		t.Errorf("%d tickets, %d tokens while one is on its way", r.Counts().Tickets, r.Pinned(r.decode.Engine()))
	}
	r.Put(t.Context(), convcache.Key{1}, taken, "m")
	if r.Pinned(r.decode.Engine()) != 40 || len(r.TicketsOut(convcache.Key{1}.Short())) != 2 || r.TicketsOut("another") != nil {
		t.Errorf("put back: %d tokens, %v", r.Pinned(r.decode.Engine()), r.TicketsOut(convcache.Key{1}.Short()))
	}
}

// What nobody frees counts until decode's TTL, as it is configured by then, and no longer than the process that holds it.
func TestPins_LostBlocksCountUntilTheTTL(t *testing.T) {
	for name, row := range map[string]struct {
		then func(r *replica)
		want []int // just before the deadline, just before the TTL, behind it
	}{
		"nothing":  {func(*replica) {}, []int{10, 10, 0}},
		"restart":  {func(r *replica) { r.model.start.Add(1); r.decode.Engine().Refresh(r.t.Context()) }, []int{0, 0, 0}},
		"released": {func(r *replica) { r.cfg.Release = false; r.GiveUp(r.t.Context(), convcache.Key{1}, Name1(r), "m") }, []int{10, 10, 0}},
	} {
		r := alone(t)
		r.put(1, 10, "")
		row.then(r)
		for i, pass := range []time.Duration{modelTTL - time.Minute - time.Second, time.Minute, time.Second} {
			r.model.passed.Add(int64(pass))
			if got := r.Pinned(r.decode.Engine()); got != row.want[i] {
				t.Errorf("%s, %d: %d tokens, want %d", name, i, got, row.want[i])
			}
		}
		if len(r.pins) != 0 || len(r.soonest) != 0 {
			t.Errorf("%s: %d pins are left", name, len(r.pins))
		}
	}
}

// Name1 is the id of the only pin.
func Name1(r *replica) convcache.TicketID {
	for id := range r.pins {
		return id
	}
	return convcache.TicketID{}
}

// Decode's clock goes on while this machine is suspended.
func TestPins_EndAtTheDeadlineOfASuspendedMachine(t *testing.T) {
	r := alone(t)
	r.put(1, 10, "")
	r.pass(clocktest.Apart(t, r.now(), modelTTL-time.Minute))
	if r.holders[r.decode].tokens[lost] != 10 {
		t.Errorf("%v", r.holders[r.decode].tokens)
	}
}

// A store that returns a ticket again, as one that has failed over might, gets nobody to read or release its blocks again.
func TestPins_ASecondTicketOfTheSameBlocksIsDropped(t *testing.T) {
	for name, spend := range map[string]func(r *replica, ticket convcache.Ticket){
		"claimed":  func(*replica, convcache.Ticket) {},
		"sent":     func(r *replica, ticket convcache.Ticket) { r.become(ticket.ID, sent) },
		"read":     func(r *replica, ticket convcache.Ticket) { r.become(ticket.ID, sent); r.become(ticket.ID, freed) },
		"released": func(r *replica, ticket convcache.Ticket) { r.Unuse(&ticket, nil) },
		"unanswered, without releases": func(r *replica, ticket convcache.Ticket) {
			r.cfg.Release = false
			r.become(ticket.ID, sent)
			r.Unuse(&ticket, r.prefill)
		},
		"open twice": func(r *replica, ticket convcache.Ticket) {
			r.Unuse(&ticket, nil)
			for range 2 {
				unheard(r.ride(r.prefill, r.decode, true))
			}
		},
	} {
		r := alone(t)
		ticket := r.put(1, 10, "")
		first, outcome := r.take(t.Context(), convcache.Key{1}, ticket.ID, "m")
		if outcome != convcache.Taken {
			t.Fatalf("%s: the first take is %s", name, outcome)
		}
		spend(r, first)
		r.store.tickets[convcache.Key{1}][ticket.ID] = ticket
		if _, outcome := r.take(t.Context(), convcache.Key{1}, ticket.ID, "m"); outcome != convcache.Consumed {
			t.Errorf("%s: the second take is %s, want none", name, outcome)
		}
		if r.answered(&ticket) {
			t.Errorf("%s: an answer that names the same blocks passes for a fresh one", name)
		}
	}
}

func TestPins_AreBounded(t *testing.T) {
	r := alone(t)
	h := r.holder(r.decode)
	for i := range maxPins + 100 {
		id := convcache.TicketID{1: byte(i), 2: byte(i >> 8), 3: byte(i >> 16)}
		// The oldest has the latest deadline, and goes first all the same.
		r.move(r.add(&pin{id: id, holder: h, tokens: 10, deadline: r.now().Add(time.Hour - time.Duration(i)*time.Microsecond)}), stored)
	}
	if r.pins[convcache.TicketID{}] != nil {
		t.Error("the oldest ticket is kept")
	}
	if len(r.pins) != maxPins || r.Pinned(r.decode.Engine()) != maxPins*10 || len(r.soonest) != maxPins {
		t.Errorf("got %d pins of %d tokens, want %d", len(r.pins), r.Pinned(r.decode.Engine()), maxPins)
	}
	if r.giveUpOldest(h, 0); len(r.late) != maxLeaving {
		t.Errorf("%d tickets are given up at once, want %d", len(r.late), maxLeaving)
	}
	for range maxDue + 10 {
		ticket := r.answer(1)
		r.answered(&ticket)
		r.Unuse(&ticket, nil)
	}
	if n, _, _ := r.Due(r.decode.Engine()); n != maxDue {
		t.Errorf("%d pins wait for their release, want %d", n, maxDue)
	}
}

func TestPins_RememberWhyATicketIsGone(t *testing.T) {
	r := alone(t)
	for i := range maxGaveUp {
		r.gaveUp[convcache.Key{2, byte(i), byte(i >> 8)}] = "full"
	}
	r.put(1, 400, "")
	if r.enforce(t.Context()); len(r.gaveUp) != 1 {
		t.Errorf("%d reasons are kept, want the newest", len(r.gaveUp))
	}
	if why := r.WhyGone(convcache.Key{1}); why != record.ReasonReleasedOverBudget || r.WhyGone(convcache.Key{2}) != "" {
		t.Errorf("got %q", why)
	}
	if r.put(1, 10, ""); r.WhyGone(convcache.Key{1}) != "" {
		t.Error("it has a ticket again")
	}
}

// What decode has freed is remembered for as long as a ticket that names it may live, and not for ever.
func TestSpend_ForgetsInGenerations(t *testing.T) {
	r := alone(t)
	life := r.cfg.TTL + marginWithoutExpiry
	first := convcache.TicketID{1}
	r.spend(first)
	for i := range 10 {
		if r.model.passed.Add(int64(life / 10)); !r.knows(first) {
			t.Fatalf("forgotten after %d tenths of the time", i+1)
		}
		r.spend(convcache.TicketID{2, byte(i)})
	}
	for i := range 2 {
		r.model.passed.Add(int64(life))
		r.spend(convcache.TicketID{3, byte(i)})
	}
	if r.knows(first) {
		t.Error("remembered for ever")
	}
	for i := range 3 * maxSpent {
		r.spend(convcache.TicketID{4, byte(i), byte(i >> 8), byte(i >> 16)})
	}
	if n := len(r.spent) + len(r.spentBefore); n > 2*maxSpent {
		t.Errorf("%d are remembered, want %d at most", n, 2*maxSpent)
	}
}
