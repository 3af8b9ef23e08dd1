package redisstore_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

// wantQuarantines checks what a replica is told.
func wantQuarantines(t *testing.T, r *replica, want ...convcache.Quarantine) {
	t.Helper()
	got, err := r.Quarantines(t.Context())
	slices.SortFunc(got, func(a, b convcache.Quarantine) int { return cmp.Compare(a.Incarnation, b.Incarnation) })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, error %v, want %+v", got, err, want)
	}
}

func mustQuarantine(t *testing.T, r *replica, q convcache.Quarantine) {
	t.Helper()
	if err := r.Quarantine(t.Context(), q); err != nil {
		t.Fatal(err)
	}
}

func TestRedis_QuarantinesAreShared(t *testing.T) {
	s := redistest.Start(t)
	setLeast(s, leastCommands())
	nodes := redistest.StartCluster(t, 3)
	for name, cfg := range map[string]redisstore.Config{
		"single server": {Addresses: []string{s.Addr()}},
		"least ACL":     {Addresses: []string{s.Addr()}, Username: "carryover", Password: "the password"},
		"cluster":       {Topology: redisstore.Cluster, Addresses: nodes.Addrs()},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Prefix = freshPrefix()
			r, other := openRedis(t, cfg), openRedis(t, cfg)
			mustCheck(t, r)
			mustCheck(t, other)
			wantQuarantines(t, r)
			one := convcache.Quarantine{Incarnation: 1, Since: 5e18}
			exposed := convcache.Quarantine{Incarnation: 2, Exposed: true, Space: 1<<63 + 7, Since: 3}
			mustQuarantine(t, r, one)
			mustQuarantine(t, other, exposed)
			mustQuarantine(t, other, exposed)
			wantQuarantines(t, r, one, exposed)
			one.Since = 4e18
			mustQuarantine(t, other, one)
			wantQuarantines(t, r, one, exposed)
			if n := r.Len(); n != 0 {
				t.Errorf("%d conversations", n)
			}
		})
	}
}

// Of more than are kept the oldest go, with their values.
func TestRedis_QuarantinesAreBounded(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s.Addr())
	for i := range redisstore.MaxQuarantines + 10 {
		mustQuarantine(t, r, convcache.Quarantine{Incarnation: convcache.Incarnation(i)})
	}
	if left, err := r.Client().PTTL(t.Context(), r.QuarantinesName()).Result(); err != nil || left > 24*time.Hour || left < 23*time.Hour {
		t.Errorf("they live for %v, error %v", left, err)
	}
	all, err := r.Quarantines(t.Context())
	if err != nil || len(all) != redisstore.MaxQuarantines {
		t.Fatalf("%d quarantines, error %v", len(all), err)
	}
	for _, q := range all {
		if q.Incarnation < 10 {
			t.Errorf("one of the oldest, %d, is there", q.Incarnation)
		}
	}
	if n, err := r.Client().HLen(t.Context(), r.QuarantinesName()).Result(); err != nil || n != redisstore.MaxQuarantines+1 {
		t.Errorf("%d fields, error %v", n, err)
	}
}

// What a writer without the secret can make of them.
func TestRedis_ForgedQuarantinesAreNone(t *testing.T) {
	s := redistest.Start(t)
	var log storeLog
	cfg := redisstore.Config{Addresses: []string{s.Addr()}, Prefix: freshPrefix(), Logger: log.logger()}
	r := openRedis(t, cfg)
	one, two := convcache.Quarantine{Incarnation: 1, Since: 7}, convcache.Quarantine{Incarnation: 2, Since: 7}
	mustQuarantine(t, r, one)
	first := quarantinesOf(t, r)
	mustQuarantine(t, r, two)
	both := quarantinesOf(t, r)
	second := slices.DeleteFunc(slices.Collect(maps.Keys(both)), func(f string) bool { return first[f] != "" })[0]
	delete(first, "all")
	for what, value := range map[string]string{
		"nothing": "", "one byte less": both[second][:len(both[second])-1], "one more": both[second] + "x",
		"that of another": slices.Collect(maps.Values(first))[0], "its field": second,
	} {
		if err := r.Client().HSet(t.Context(), r.QuarantinesName(), second, value).Err(); err != nil {
			t.Fatal(err)
		}
		if all, err := r.Quarantines(t.Context()); err != nil || !slices.Equal(all, []convcache.Quarantine{one}) {
			t.Errorf("a value that is %s: %+v, error %v", what, all, err)
		}
	}
	for _, list := range []string{"", "x", both["all"] + "a field and more", both["all"][:16] + "0123456789abcdef"} {
		if err := r.Client().HSet(t.Context(), r.QuarantinesName(), "all", list).Err(); err != nil {
			t.Fatal(err)
		}
		if all, err := r.Quarantines(t.Context()); err != nil || len(all) > 1 {
			t.Errorf("a list of %q: %+v, error %v", list, all, err)
		}
	}
	foreign := openRedis(t, redisstore.Config{Addresses: cfg.Addresses, Prefix: cfg.Prefix, Secret: mustSecret(t, "the secret of somebody else")})
	mustQuarantine(t, foreign, two)
	if all, err := r.Quarantines(t.Context()); err != nil || slices.Contains(all, two) {
		t.Errorf("that of another secret: %+v, error %v", all, err)
	}
	if log.count("not authentic") == 0 {
		t.Error("nothing is said")
	}
}

func quarantinesOf(t *testing.T, r *replica) map[string]string {
	t.Helper()
	all, err := r.Client().HGetAll(t.Context(), r.QuarantinesName()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRedis_QuarantinesAreNotAskedForWhileTheBreakerIsOpen(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s.Addr())
	mustQuarantine(t, r, convcache.Quarantine{Incarnation: 1})
	r.OpenBreaker()
	if all, err := r.Quarantines(t.Context()); err == nil || all != nil {
		t.Errorf("got %+v, error %v", all, err)
	}
	if err := r.Quarantine(t.Context(), convcache.Quarantine{Incarnation: 2}); err == nil {
		t.Error("published")
	}
}
