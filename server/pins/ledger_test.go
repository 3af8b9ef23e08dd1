package pins

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// cached is a ledger of one decode engine, whose start may be replaced, with a cache of 1,000 tokens in blocks of 10.
type cached struct {
	*Ledger
	t           *testing.T
	fleet       *fleet.Fleet
	engine      *fleet.Engine
	incarnation atomic.Int64
}

type firstOf struct{}

func (firstOf) Pick([]upstream.Candidate, string) int { return 0 }

func newCached(t *testing.T, share float64) *cached {
	t.Helper()
	c := &cached{t: t}
	c.incarnation.Store(1)
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "process_start_time_seconds %d\n"+
			"vllm:cache_config_info{block_size=\"10\",num_gpu_blocks=\"100\"} 1\n", c.incarnation.Load())
	}))
	t.Cleanup(metrics.Close)
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: time.Minute})
	t.Cleanup(client.Close)
	f := fleet.New(fleet.Config{Client: client, Prefill: firstOf{}, Decode: firstOf{}, ReadLimit: time.Minute, AskLimit: time.Minute})
	instance, err := upstream.NewInstance(upstream.RoleDecode, "d", metrics.URL)
	if err != nil {
		t.Fatal(err)
	}
	f.Set([]upstream.Instance{instance})
	c.fleet, c.Ledger, c.engine = f, newLedger(f.Holders, share, newStates(time.Hour, nil)), f.Engine(upstream.RoleDecode, "d")
	c.engine.Refresh(t.Context())
	return c
}

// ticket is one of the engine's first start that ends after so many minutes.
func (c *cached) ticket(n byte, tokens, minutes int) *convcache.Ticket {
	return &convcache.Ticket{
		Branch: convcache.Branch{ID: convcache.TicketID{n}, Decode: convcache.Holder{Instance: "d", Incarnation: "1"}, Tokens: tokens, Deadline: time.Now().Add(time.Duration(minutes) * time.Minute)},
	}
}

func (c *cached) want(tokens int) {
	c.t.Helper()
	if got := c.tokens(c.engine.Last()); got != tokens {
		c.t.Errorf("got %d tokens, want %d", got, tokens)
	}
}

func TestLedger_CountsTicketsInWholeBlocks(t *testing.T) {
	c := newCached(t, 1)
	c.put(convcache.Key{1}, c.ticket(1, 11, 1), "m")
	c.put(convcache.Key{1}, c.ticket(2, 20, 1), "m")
	c.want(40)
	c.put(convcache.Key{1}, c.ticket(2, 20, 1), "m") // put back
	c.want(40)
	c.gone(convcache.TicketID{1}, convcache.Taken)
	c.gone(convcache.TicketID{1}, convcache.Taken)
	c.gone(convcache.TicketID{9}, convcache.Taken)
	c.want(20)
	foreign := c.ticket(3, 20, 1)
	foreign.Decode.Incarnation = "2"
	c.put(convcache.Key{1}, foreign, "m")
	foreign.Decode.Instance = "another"
	c.put(convcache.Key{1}, foreign, "m")
	c.want(20)
}

func TestLedger_ForgetsWhatIsOver(t *testing.T) {
	c := newCached(t, 1)
	for i := range 5 {
		c.put(convcache.Key{1}, c.ticket(byte(i), 10, i), "m")
	}
	if all := c.all(time.Now().Add(150 * time.Second)); len(all) != 1 {
		t.Fatalf("got %d starts, want 1", len(all))
	}
	c.want(20)
	c.incarnation.Store(2)
	c.engine.Refresh(t.Context())
	if all := c.all(time.Now()); len(all) != 1 || len(c.pins) != 0 || len(c.pinned) != 1 {
		t.Errorf("%d pins of %d starts are kept of an engine in another start", len(c.pins), len(c.pinned))
	}
	c.incarnation.Store(3)
	c.engine.Refresh(t.Context())
	fresh := c.ticket(1, 10, 1)
	fresh.Decode.Incarnation = "3"
	c.put(convcache.Key{1}, fresh, "m")
	c.fleet.Set(nil)
	if all := c.all(time.Now()); len(all) != 1 || len(c.pins) != 1 {
		t.Errorf("%d pins are kept of an engine that was removed, want 1: its process may hold the blocks still", len(c.pins))
	}
}

func TestLedger_GivesTheOldestAndSaysWhenItIsTooMuch(t *testing.T) {
	c := newCached(t, 0.05)
	for i, minutes := range []int{1, 2, 3, 4, 5} {
		c.put(convcache.Key{byte(minutes)}, c.ticket(byte(minutes), 10, minutes), "m")
		if i < 4 && len(c.over) != 0 {
			t.Errorf("%d tokens are said to be too much", 10*(i+1))
		}
	}
	c.put(convcache.Key{6}, c.ticket(6, 10, 6), "m")
	c.put(convcache.Key{7}, c.ticket(7, 10, 7), "m")
	if len(c.over) != 1 {
		t.Error("more than the budget was put, and no word of it")
	}
	of := c.all(time.Now())[0]
	for want := byte(1); want <= 4; want++ {
		p, more := c.next(of, 30)
		if !more || p.id != (convcache.TicketID{want}) {
			t.Fatalf("got ticket %v, %t; want %d", p.id, more, want)
		}
	}
	if p, more := c.next(of, 30); more {
		t.Errorf("got ticket %v, though the rest fits", p.id)
	}
	if tokens := c.Pinned(c.engine); tokens != 70 {
		t.Errorf("%d tokens count as pinned while tickets are taken out of the store, want all 70", tokens)
	}
	quiet := c.ticket(8, 10, 1)
	quiet.Account = "quiet"
	c.put(convcache.Key{8}, quiet, "m")
	for range 3 {
		if p, more := c.next(of, 10); !more || p.id == quiet.ID {
			t.Errorf("%v had to go, %t; want those of the account that pins most", p.id, more)
		}
	}
}

func TestLedger_IsBounded(t *testing.T) {
	c := newCached(t, 1)
	for i := range maxPins + 100 {
		ticket := c.ticket(0, 10, 60)
		ticket.ID = convcache.TicketID{byte(i), byte(i >> 8), byte(i >> 16)}
		c.put(convcache.Key{}, ticket, "m")
	}
	if len(c.pins) != maxPins {
		t.Errorf("got %d pins, want %d", len(c.pins), maxPins)
	}
	c.want(maxPins * 10)
	for i := range 3 * maxRecent {
		c.givenUp(convcache.Key{byte(i), byte(i >> 8), byte(i >> 16)}, record.ReasonReleasedOverBudget)
	}
	if n := len(c.gaveUp.young) + len(c.gaveUp.old); n > 2*maxRecent {
		t.Errorf("%d conversations are remembered, want %d at most", n, 2*maxRecent)
	}
}

func TestLedger_RemembersWhatWasGivenUp(t *testing.T) {
	c := newCached(t, 1)
	key := convcache.Key{1}
	for _, want := range []record.Reason{record.ReasonReleasedOverBudget, record.ReasonInstanceGone} {
		c.givenUp(key, want)
		if c.why(key) != want || c.why(convcache.Key{2}) != "" {
			t.Error("the conversation is not known for what it is")
		}
	}
	c.put(key, c.ticket(1, 10, 1), "m")
	if c.why(key) != "" {
		t.Error("it has a ticket again")
	}
}

// Of an idle engine all that is in use is pinned: each replica keeps its part of the budget.
func TestLedger_ReplicasKeepTheirPart(t *testing.T) {
	now := time.Now()
	idle := fleet.Live{Load: fleet.Load{Use: facts.Use{KVTokens: 1000, Usage: 0.8}, Read: now}}
	with := func(change func(*fleet.Live)) fleet.Live {
		l := idle
		change(&l)
		return l
	}
	for name, tc := range map[string]struct {
		live fleet.Live
		b    rounds
		want int
	}{
		"others pin as much":        {idle, rounds{}, 250},
		"it runs something":         {with(func(l *fleet.Live) { l.Running = 1 }), rounds{}, 500},
		"something waits":           {with(func(l *fleet.Live) { l.Waiting = 1 }), rounds{}, 500},
		"a turn of ours runs":       {with(func(l *fleet.Live) { l.InFlight = 1 }), rounds{}, 500},
		"it is within the budget":   {with(func(l *fleet.Live) { l.Usage = 0.5 }), rounds{}, 500},
		"it was never read":         {with(func(l *fleet.Live) { l.Read = time.Time{} }), rounds{}, 500},
		"it was read before":        {idle, rounds{changed: now.Add(time.Millisecond)}, 500},
		"it was compared just now":  {idle, rounds{compared: now.Add(-time.Second)}, 500},
		"it was compared long ago":  {idle, rounds{compared: now.Add(-time.Minute), changed: now.Add(-time.Second)}, 250},
		"what is in use is our own": {with(func(l *fleet.Live) { l.Usage = 0.4 }), rounds{}, 500},
	} {
		c := newCached(t, 0.5)
		c.put(convcache.Key{1}, c.ticket(1, 400, 1), "m")
		of := c.all(now)[0]
		of.rounds = tc.b
		if got, waited := c.keep(of, tc.live, c.most(tc.live.KVTokens)); got != tc.want || waited {
			t.Errorf("%s: got %d tokens, want %d", name, got, tc.want)
		}
	}
}
