package redisstore_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redistest"
)

// stage is a server with replicas, and the tickets of a test by their names.
type stage struct {
	t       *testing.T
	server  *redistest.Server
	stores  map[string]*replica // r, and o, which is another process
	clock   *clock              // of both
	tickets map[string]Ticket
	keys    map[string]Key // of the tickets that were put
}

// newStage starts a server, with a replica of that config and a plain one.
func newStage(t *testing.T, cfg Config, args ...string) *stage {
	t.Helper()
	st := &stage{t: t, server: redistest.Start(t, args...), clock: &clock{}, tickets: map[string]Ticket{}, keys: map[string]Key{}}
	cfg.Now = st.clock.now
	st.stores = map[string]*replica{"r": openAt(t, st.server, cfg), "o": openAt(t, st.server, Config{Now: st.clock.now})}
	return st
}

// ticket returns the ticket of a name, with tokens of its own.
func (st *stage) ticket(name string) Ticket {
	if _, known := st.tickets[name]; !known {
		st.tickets[name] = ticket(len(st.tickets), 10)
	}
	return st.tickets[name]
}

// quiet plays steps during which the server is told nothing.
func (st *stage) quiet(steps string) {
	st.t.Helper()
	if said := monitor(st.t, st.server, func() { st.play(steps) }); said != "" {
		st.t.Errorf("during %q the server was told %q", steps, said)
	}
}

// play does steps, separated by semicolons. Each is a verb and what it is about: tickets, conversations as numbers, a time, and the
// outcome where it is another than success; "o" before it has the other replica do it. A put names what it displaces behind its ticket,
// a look what it finds, and nothing if that does not matter.
func (st *stage) play(steps string) {
	st.t.Helper()
	for step := range strings.SplitSeq(steps, ";") {
		words := strings.Fields(step)
		store := "r"
		if st.stores[words[0]] != nil {
			store, words = words[0], words[1:]
		}
		st.step(st.stores[store], words[0], words[1:])
	}
}

func (st *stage) step(r *replica, verb string, words []string) {
	t := st.t
	t.Helper()
	k, number, want, names := k1, 1, Outcome(-1), []string(nil)
	for _, word := range words {
		if n, err := strconv.Atoi(word); err == nil {
			k, number = key(n), n
		} else if outcome, ok := outcomeNamed(word); ok {
			want = outcome
		} else {
			names = append(names, word)
		}
	}
	or := func(otherwise Outcome) Outcome {
		if want < 0 {
			return otherwise
		}
		return want
	}
	sameIDs := func(got []TicketID) {
		var all []TicketID
		for _, name := range names {
			all = append(all, st.tickets[name].ID)
		}
		if !slices.Equal(got, all) {
			t.Errorf("%s %v: got %v, want %v", verb, words, got, all)
		}
	}
	switch verb {
	case "put":
		st.keys[names[0]] = k
		displaced := ids(r.put(k, st.ticket(names[0]), or(Stored))...)
		names = names[1:]
		sameIDs(displaced)
	case "take":
		if got := r.take(st.keys[names[0]], st.ticket(names[0]), or(Taken)); string(got.Params) != string(st.tickets[names[0]].Params) && or(Taken) == Taken {
			t.Errorf("take %v: got other params", words)
		}
	case "look":
		branches := r.look(k, or(Found))
		if names != nil {
			sameIDs(branchIDs(branches))
		}
	case "home":
		r.home(k)
	case "check":
		r.check()
	case "down":
		r.down()
	case "len":
		if got := r.Len(); got != number {
			t.Errorf("conversations: got %d, want %d", got, number)
		}
	case "shares":
		if !r.Shares() {
			t.Error("operations are not sent")
		}
	case "open":
		r.OpenBreaker()
	case "close":
		r.CloseBreaker()
	case "run":
		runBeside(t, r)
		eventually(t, "a store that shares again", func() bool { return r.State() == convcache.RemoteUp && r.Shares() })
	case "kill":
		st.server.Kill()
	case "restart":
		st.server.Restart()
	case "wait": // a minute
		st.clock.advance(time.Minute)
	case "occupy": // with something that is no conversation
		st.server.CLI("SET", r.KeyName(k), "somebody's")
	default:
		t.Fatalf("no step is called %q", verb)
	}
}

// outcomeNamed returns the outcome of that name.
func outcomeNamed(name string) (Outcome, bool) {
	for o := Unavailable; o.String() != "unknown"; o++ {
		if o.String() == name {
			return o, true
		}
	}
	return 0, false
}
