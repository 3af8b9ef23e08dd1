package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redistest"
)

// goesHome checks that a put is tried, refused, and kept in this process.
func goesHome(t *testing.T, r *replica, k Key) {
	t.Helper()
	if !r.Shares() {
		t.Fatal("nothing is sent")
	}
	tk := ticket(5, 10)
	before := r.Len()
	r.put(k, tk)
	if got := r.Len(); got != before+1 {
		t.Errorf("conversations: got %d, want %d with that of this process", got, before+1)
	}
	r.take(k, tk)
}

func TestRedis_Full_TicketsStayHome(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
	r, other, first, newer := openAt(t, s), openAt(t, s), ticket(0, 10), ticket(0, 10)
	r.check()
	r.put(key(0), first)
	for n := 1; s.CLI("EXISTS", r.KeyName(key(n-1))) == "1"; n++ {
		r.put(key(n), ticket(n, 100_000))
		if n > 50 {
			t.Fatal("5 MB fit into 3")
		}
	}
	s.CLI("CONFIG", "SET", "maxmemory", "1mb") // what did not fit has left room for less
	goesHome(t, r, key(200))
	r.put(key(0), newer) // which supersedes the first; nothing is changed there
	other.take(key(0), newer, Consumed)
	other.take(key(0), first)
	r.take(key(0), newer)
}

func TestRedis_ReadOnlyReplicaTakesNoTickets(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	atMaster, r := openAt(t, master), openAt(t, replica)
	replica.ReplicaOf(master) // a first replica changes master_replid: syncCommand in replication.c of Redis 7.0
	tk := ticket(1, 10)
	atMaster.put(k1, tk)
	eventually(t, "a replica in step", func() bool { return replica.CLI("DBSIZE") == "1" })
	r.down()
	fresh := openAt(t, replica) // not checked
	goesHome(t, fresh, k2)
	fresh.take(k1, tk, Unavailable)
	atMaster.take(k1, tk)
}

// Behind one address servers change roles, and connections stay where they are.
func TestRedis_LeavesAServerThatIsAReplicaNow(t *testing.T) {
	old, next := redistest.Start(t), redistest.Start(t)
	next.ReplicaOf(old)
	front := redistest.Forward(t, old.Addr())
	r, atNext := openAt(t, front), openAt(t, next)
	r.check()
	next.Promote()
	front.Redirect(next.Addr())
	old.ReplicaOf(next)
	n := 0
	eventually(t, "a ticket at the new master", func() bool {
		n++
		tk := ticket(n, 10)
		r.put(key(n), tk)
		_, outcome := atNext.Take(t.Context(), key(n), tk.ID)
		return outcome == Taken
	})
	if !r.Shares() {
		t.Error("the breaker is open: what was needed were new connections")
	}
}

func TestRedis_Loading_TicketsStayHome(t *testing.T) {
	s := redistest.Start(t, "--enable-debug-command", "local", "--loading-process-events-interval-bytes", "1024")
	r, admin := openAt(t, s), openAt(t, s)
	r.check()
	for n := range 200 {
		admin.put(key(1000+n), ticket(n, 100))
	}
	s.CLI("CONFIG", "SET", "key-load-delay", "5000") // microseconds
	loaded := make(chan error, 1)
	go func() { loaded <- admin.Client().Do(context.WithoutCancel(t.Context()), "DEBUG", "RELOAD").Err() }()
	eventually(t, "a server that loads", func() bool {
		err := r.Client().Ping(t.Context()).Err()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	})
	r.home(k1)
	r.look(k1, Unavailable)
	r.down()
	s.CLI("CONFIG", "SET", "key-load-delay", "0")
	must(t, <-loaded)
	r.check()
}

// What comes back must be what was put, or nothing that is there can be trusted.
func TestRedis_CheckComparesWhatComesBack(t *testing.T) {
	r := openAt(t, redistest.Start(t))
	for _, reply := range []string{`{'taken', 'x', values[2]}`, `{'taken', values[1], 'x'}`, `{'consumed'}`} {
		r.mutate(`{'taken', values[1], values[2]}`, reply).down()
	}
}

// A service may hide INFO, or parts of it.
func TestRedis_WithoutMasterReplidTicketsStayHome(t *testing.T) {
	s := redistest.Start(t)
	r, a, local := openAt(t, s), ticket(1, 10), ticket(2, 10)
	hidden := r.mutate("'master_replid:'", "'hidden:'")
	r.check()
	r.put(k1, a)
	hidden.put(k2, local)
	if keys := s.CLI("DBSIZE"); keys != "1" { // a check leaves none
		t.Errorf("keys in Redis: got %s, want 1: the second ticket stays here", keys)
	}
	hidden.take(k2, local)
	hidden.take(k1, a, Unavailable)
	r.take(k1, a) // nothing was done to it
	if err := hidden.Check(t.Context()); !errors.Is(err, convcache.ErrRemoteForbids) || !strings.Contains(err.Error(), "master_replid") {
		t.Errorf("check: got %v, want %v that names master_replid", err, convcache.ErrRemoteForbids)
	}
}

// A right that is revoked while the store is in use may stop a script after its first write.
func TestRedis_RightsRevoked_TicketIsUsedOnce(t *testing.T) {
	s := redistest.Start(t)
	setLeast(s, leastCommands())
	r, half := openAt(t, s, Config{Username: "carryover", Password: "the password"}), ticket(1, 10)
	r.check()
	s.CLI("ACL", "SETUSER", "carryover", "-pexpire")
	r.put(k1, half, Unavailable)
	if got := r.Len(); got > 1 {
		t.Errorf("conversations: got %d, want 1: what may have been stored is not kept here too", got)
	}
	openAt(t, s).take(k1, half)
	r.take(k1, half, Consumed)
	s.CLI("ACL", "SETUSER", "carryover", "-evalsha")
	goesHome(t, r, k2)
}

func TestRedis_CheckNamesAMissingCommand(t *testing.T) {
	s := redistest.Start(t, "--rename-command", "EVALSHA", "")
	err := openAt(t, s).Check(t.Context())
	if !errors.Is(err, convcache.ErrRemoteForbids) || !strings.Contains(err.Error(), "lacks a command") {
		t.Errorf("check: got %v, want %v that says what is lacking", err, convcache.ErrRemoteForbids)
	}
}

func TestStore_LookTellsWhatTheServerDoesWithItsMemory(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl")
	store := openStore(t, Config{Addresses: []string{server.Addr()}, Now: func() time.Time { return time.Now().Add(-time.Hour) }})
	seen, err := store.Look(t.Context())
	if err != nil || seen.MaxMemory != 64<<20 || seen.Eviction != "volatile-ttl" || seen.Apart.Round(time.Minute) != time.Hour {
		t.Errorf("Look = %+v, %v, want 64 MiB, volatile-ttl and a clock that is an hour ahead", seen, err)
	}
	if keys := server.CLI("DBSIZE"); keys != "0" {
		t.Errorf("looking has left %s keys", keys)
	}
}

func TestStore_LookSaysThatTheUserIsRefused(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "right")
	if _, err := openStore(t, Config{Addresses: []string{server.Addr()}, Password: "wrong"}).Look(t.Context()); !errors.Is(err, convcache.ErrRemoteForbids) {
		t.Errorf("Look = %v, want ErrRemoteForbids", err)
	}
}
