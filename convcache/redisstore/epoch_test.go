package redisstore_test

import (
	"testing"

	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

// mustShareEpoch shares an epoch, and checks what it is then.
func mustShareEpoch(t *testing.T, r *replica, own int64, risen bool, want int64) {
	t.Helper()
	if err := r.ShareEpoch(t.Context(), own, risen); err != nil || r.Epoch() != want {
		t.Errorf("epoch %d, risen %t: got %d, error %v, want %d", own, risen, r.Epoch(), err, want)
	}
}

func TestRedis_TheEpochIsShared(t *testing.T) {
	s := redistest.Start(t)
	setLeast(s, leastCommands())
	nodes := redistest.StartCluster(t, 3)
	const rise = int64(1_790_000_000_123)
	for name, cfg := range map[string]Config{
		"single server": {Addresses: []string{s.Addr()}},
		"least ACL":     {Addresses: []string{s.Addr()}, Username: "carryover", Password: "the password"},
		"cluster":       {Topology: redisstore.Cluster, Addresses: nodes.Addrs()},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Prefix = freshPrefix()
			r, other := openRedis(t, cfg), openRedis(t, cfg)
			mustCheck(t, r)
			mustCheck(t, other)
			mustShareEpoch(t, r, 0, false, 0)
			all := cfg
			all.Username, all.Password = "", ""
			admin := openRedis(t, all).Client()
			if n, err := admin.Exists(t.Context(), r.EpochName()).Result(); err != nil || n != 0 {
				t.Errorf("%d keys before the first rise, error %v", n, err)
			}
			mustShareEpoch(t, r, rise, true, rise)
			mustShareEpoch(t, other, rise-5, true, rise+1) // which has risen at the same time
			mustShareEpoch(t, r, rise, false, rise+1)      // nothing takes it back
			if left, err := admin.PTTL(t.Context(), r.EpochName()).Result(); err != nil || left > 0 {
				t.Errorf("it lives for %v, error %v, want for ever", left, err)
			}
			if n := r.Len(); n != 0 {
				t.Errorf("%d conversations", n)
			}
			late := openRedis(t, cfg)
			mustCheck(t, late) // before it serves
			if got := late.Epoch(); got != rise+1 {
				t.Errorf("a new replica has epoch %d, want %d", got, rise+1)
			}
		})
	}
}

// A replica that finds or takes a ticket knows of every rise before.
func TestRedis_LooksAndTakesShowTheEpoch(t *testing.T) {
	s := redistest.Start(t)
	nodes := redistest.StartCluster(t, 3)
	for name, cfg := range map[string]Config{
		"single server": {Addresses: []string{s.Addr()}}, "cluster": ofCluster(nodes),
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Prefix = freshPrefix()
			r, other := openRedis(t, cfg), openRedis(t, cfg)
			for n := range 4 { // of a Cluster several masters
				tk := ticket(n, 10)
				tk.Epoch = int64(n)
				wantPut(t, r, key(n), tk, Stored)
				mustShareEpoch(t, other, int64(10*n+1), true, int64(10*n+1))
				if looked := wantLook(t, r, key(n), Found); looked[0].Epoch != int64(n) || r.Epoch() != int64(10*n+1) {
					t.Errorf("a look-up shows epoch %d of the ticket and %d of the fleet", looked[0].Epoch, r.Epoch())
				}
				mustShareEpoch(t, other, int64(10*n+5), true, int64(10*n+5))
				if taken := wantTake(t, r, key(n), tk.ID, Taken); taken.Epoch != int64(n) || r.Epoch() != int64(10*n+5) {
					t.Errorf("a take shows epoch %d of the ticket and %d of the fleet", taken.Epoch, r.Epoch())
				}
			}
		})
	}
}

// What can't be known is doubt.
func TestRedis_AnEpochThatIsNoNumber(t *testing.T) {
	var log storeLog
	r := openRedis(t, Config{Addresses: []string{redistest.Start(t).Addr()}, Logger: log.logger()})
	tk := ticket(1, 10)
	wantPut(t, r, key(1), tk, Stored)
	mustShareEpoch(t, r, 7, true, 7)
	for _, value := range []string{"", "x", "0x9", "1e300", "nan"} {
		must(t, r.Client().HSet(t.Context(), r.EpochName(), "0i", value).Err())
		wantTake(t, r, key(1), tk.ID, Unavailable)
		wantPut(t, r, key(1), tk, Stored)
		mustShareEpoch(t, r, 7, false, 7) // the replica that knows it writes it again
		if got, err := r.Client().HGet(t.Context(), r.EpochName(), "0i").Result(); err != nil || got != "7" {
			t.Errorf("%q becomes %q, error %v", value, got, err)
		}
	}
	if log.count("not authentic") == 0 {
		t.Error("nothing is said")
	}
	r.OpenBreaker()
	if err := r.ShareEpoch(t.Context(), 9, true); err == nil || r.Epoch() != 7 {
		t.Errorf("while the breaker is open: epoch %d, error %v", r.Epoch(), err)
	}
}
