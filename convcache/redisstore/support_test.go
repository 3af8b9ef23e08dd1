package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

// What every test names.
type (
	Key         = convcache.Key
	Ticket      = convcache.Ticket
	Outcome     = convcache.Outcome
	Holder      = convcache.Holder
	Chain       = convcache.Chain
	TicketID    = convcache.TicketID
	KeyedBranch = convcache.KeyedBranch
	Config      = redisstore.Config
)

// The outcomes of operations.
const (
	Stored, Superseded, Expired = convcache.Stored, convcache.Superseded, convcache.Expired
	Taken, Consumed, Fenced     = convcache.Taken, convcache.Consumed, convcache.Fenced
	Found, Empty, Unavailable   = convcache.Found, convcache.Empty, convcache.Unavailable
)

// patient is a Timeout that two busy cores keep.
const patient = 5 * time.Second

const redisTTL = time.Minute

// sharedSecret is the secret of all replicas of a test.
func sharedSecret(tb testing.TB) convcache.Secret {
	tb.Helper()
	return mustSecret(tb, "the secret of all replicas")
}

// openRedis returns a replica that is closed with the test. Where cfg leaves them out it has the shared secret, a
// patient Timeout and a clock that stands. What is kept in this process may be bounded.
func openRedis(tb testing.TB, cfg Config, localBytes ...int64) *replica {
	tb.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = patient
	}
	if cfg.Now == nil {
		cfg.Now = (&clock{}).now
	}
	if cfg.Secret.IsZero() {
		cfg.Secret = sharedSecret(tb)
	}
	store, err := redisstore.New(cfg)
	must(tb, err)
	local := convcache.MemoryConfig{Now: cfg.Now, MaxBytes: append(localBytes, 0)[0]}
	r := newReplica(tb, store, convcache.SharedConfig{Local: local, Logger: cfg.Logger})
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return r
}

// openAt is openRedis for one server, or a way to it, and what else a config says.
func openAt(tb testing.TB, at interface{ Addr() string }, cfg ...Config) *replica {
	tb.Helper()
	one := append(cfg, Config{})[0]
	one.Addresses = []string{at.Addr()}
	return openRedis(tb, one)
}

// down checks that a replica finds its server not usable now, and not forbidden.
func (r *replica) down() {
	r.t.Helper()
	if err := r.Check(r.t.Context()); err == nil || errors.Is(err, convcache.ErrRemoteForbids) {
		r.t.Errorf("check: got %v, want another error than %v", err, convcache.ErrRemoteForbids)
	}
}

func ofCluster(nodes *redistest.ClusterNodes) Config {
	return Config{Topology: redisstore.Cluster, Addresses: nodes.Addrs()}
}

// check waits until the store passes its own test of the server, which on a busy machine may take longer than
// the second that the test grants: a Sentinel writes its file to disk now and then.
func (r *replica) check() {
	r.t.Helper()
	eventually(r.t, "a check that succeeds", func() bool {
		err := r.Check(context.Background())
		if errors.Is(err, convcache.ErrRemoteForbids) {
			r.t.Fatalf("check: %v", err)
		}
		return err == nil
	})
}

// ends compares how an operation ended, where no outcome is named with success.
func (r *replica) ends(what string, k Key, got, success Outcome, named []Outcome) {
	r.t.Helper()
	if want := append(named, success)[0]; got != want {
		r.t.Errorf("%s %s: got %v, want %v", what, k.Short(), got, want)
	}
}

// put puts a ticket for a minute and compares the outcome.
func (r *replica) put(k Key, tk Ticket, want ...Outcome) []Ticket {
	r.t.Helper()
	return r.putFor(redisTTL, k, tk, want...)
}

func (r *replica) putFor(life time.Duration, k Key, tk Ticket, want ...Outcome) []Ticket {
	r.t.Helper()
	displaced, got := r.Put(context.Background(), k, tk, life)
	r.ends("put to", k, got, Stored, want)
	return displaced
}

// take takes a ticket and compares the outcome.
func (r *replica) take(k Key, tk Ticket, want ...Outcome) Ticket {
	r.t.Helper()
	taken, got := r.Take(context.Background(), k, tk.ID)
	r.ends("take from", k, got, Taken, want)
	return taken
}

// look peeks and compares the outcome.
func (r *replica) look(k Key, want ...Outcome) []KeyedBranch {
	r.t.Helper()
	branches, got := r.Peek(context.Background(), []Key{k})
	r.ends("peek at", k, got, Found, want)
	return branches
}

// shows peeks and compares which tickets are there, the newest first.
func (r *replica) shows(k Key, want ...Ticket) {
	r.t.Helper()
	if !slices.EqualFunc(r.look(k), want, func(b KeyedBranch, tk Ticket) bool { return b.ID == tk.ID }) {
		r.t.Errorf("peek at %s: got other branches than the %d wanted", k.Short(), len(want))
	}
}

// quiet does something during which the server is told nothing.
func quiet(t *testing.T, s *redistest.Server, do func()) {
	t.Helper()
	if said := monitor(t, s, do); said != "" {
		t.Errorf("the server was told %q", said)
	}
}

// eventually waits until holds says yes, looking again every few milliseconds: what another process does on its
// own cannot be waited for otherwise. A fleet shares tickets again within 11 s, since Run tests after 1, 3 and 7 s.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			tb.Fatalf("%s: not within 30 s", what)
		}
	}
}

// freshPrefix returns a prefix that no other store has.
func freshPrefix() string { return "carryover:" + convcache.NewTicketID().String() }

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
