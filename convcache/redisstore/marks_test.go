package redisstore_test

import (
	"carryover/logtest"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache/redistest"
)

// Incarnations as a server names them.
const (
	incarnationOne = "http://10.1.2.3:8100 1.7920001e+09"
	incarnationTwo = "http://10.1.2.3:8100 1.7920002e+09" // the same instance after a restart
)

func mustQuarantineIncarnation(t *testing.T, r *replica, incarnation string) {
	t.Helper()
	if err := r.Mark(t.Context(), incarnation, ""); err != nil {
		t.Fatalf("quarantine %q: %v", incarnation, err)
	}
}

// wantQuarantined asks for both incarnations, and for one that is never quarantined.
func wantQuarantined(t *testing.T, r *replica, one, two bool) {
	t.Helper()
	got, err := r.Marks(t.Context(), []string{incarnationOne, "http://10.1.2.4:8100 1.79e+09", incarnationTwo})
	_, first := got[incarnationOne]
	if _, second := got[incarnationTwo]; err != nil || first != one || second != two || len(got) > 2 {
		t.Errorf("quarantined: got %v, error %v, want %t and %t", got, err, one, two)
	}
}

// sharesMarks checks the rules of quarantines.
func sharesMarks(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Prefix = freshPrefix()
	r, other := openRedis(t, cfg), openRedis(t, cfg)
	mustCheck(t, r)
	mustCheck(t, other)
	wantQuarantined(t, r, false, false)
	mustQuarantineIncarnation(t, r, incarnationTwo)
	wantQuarantined(t, r, false, true)
	wantQuarantined(t, other, false, true)
	mustQuarantineIncarnation(t, other, incarnationOne)
	mustQuarantineIncarnation(t, other, incarnationOne)
	wantQuarantined(t, r, true, true)
	if got, err := r.Marks(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("quarantined of none: got %v, error %v", got, err)
	}
	if got := r.Len(); got != 0 {
		t.Errorf("conversations: got %d, want 0: quarantines are none", got)
	}
	tk := ticket(1, 10)
	wantPut(t, r, key(1), tk, Stored)
	if got := other.Len(); got != 1 {
		t.Errorf("conversations: got %d, want 1 besides the quarantines", got)
	}
	wantTake(t, other, key(1), tk.ID, Taken)
}

// quarantinedFields returns the hash of all quarantines.
func quarantinedFields(t *testing.T, r *replica) map[string]string {
	t.Helper()
	fields, err := r.Client().HGetAll(t.Context(), r.MarksName()).Result()
	must(t, err)
	return fields
}

func TestRedis_AnotherSecretQuarantinesNothing(t *testing.T) {
	s, r := startRedis(t)
	foreign := openOn(t, s, Config{Secret: mustSecret(t, "the secret of somebody else")})
	mustQuarantineIncarnation(t, foreign, incarnationOne)
	wantQuarantined(t, r, false, false)
	mustQuarantineIncarnation(t, r, incarnationTwo)
	wantQuarantined(t, foreign, true, false)
	wantQuarantined(t, r, false, true)
}

// Values that a writer without the secret can write in place of quarantines.
func TestRedis_ForgedValuesQuarantineNothing(t *testing.T) {
	s := redistest.Start(t)
	var log logtest.Log
	r := openOn(t, s, Config{Prefix: freshPrefix(), Logger: log.Logger()})
	mustQuarantineIncarnation(t, r, incarnationOne)
	one := quarantinedFields(t, r)
	mustQuarantineIncarnation(t, r, incarnationTwo)
	both := quarantinedFields(t, r)
	if len(one) != 1 || len(both) != 2 {
		t.Fatalf("got %d and %d fields, want 1 and 2", len(one), len(both))
	}
	first := slices.Collect(maps.Keys(one))[0]
	second := slices.DeleteFunc(slices.Collect(maps.Keys(both)), func(f string) bool { return f == first })[0]
	wantPut(t, r, Key{}, fullTicket(1), Stored)
	ticket := readHash(t, r, Key{})
	flipped := []byte(both[second])
	flipped[len(flipped)-1] ^= 1
	for what, value := range map[string]string{
		"nothing": "", "one": "1", "one byte less": both[second][:len(both[second])-1], "one more": both[second] + "x",
		"another bit": string(flipped), "the value of another incarnation": both[first], "its field": second,
		"an index": ticket["0i"], "a branch": ticket["0b"], "params": ticket["0p"],
	} {
		must(t, r.Client().HSet(t.Context(), r.MarksName(), second, value).Err())
		got, err := r.Marks(t.Context(), []string{incarnationOne, incarnationTwo})
		if err != nil || !maps.Equal(got, map[string]string{incarnationOne: ""}) {
			t.Errorf("a value that is %s: got %v, error %v, want the first incarnation quarantined alone", what, got, err)
		}
	}
	if got := log.Count("not authentic"); got != 1 {
		t.Errorf("warnings: got %d, want 1 a minute", got)
	}
	mustQuarantineIncarnation(t, r, incarnationTwo) // and a replica that knows of it quarantines it again
	wantQuarantined(t, r, true, true)
}

func TestRedis_QuarantinedIncarnationsEndAfterADay(t *testing.T) {
	s, r := startRedis(t)
	const day = 24 * time.Hour
	for _, incarnation := range []string{incarnationOne, incarnationTwo, incarnationOne} {
		mustQuarantineIncarnation(t, r, incarnation)
		if got, err := r.Client().PTTL(t.Context(), r.MarksName()).Result(); err != nil || got > day || got < day-time.Minute {
			t.Errorf("quarantines live for %v (error %v), want %v", got, err, day)
		}
		must(t, r.Client().PExpire(t.Context(), r.MarksName(), time.Hour).Err())
	}
	s.CLI("DEL", r.MarksName())
	wantQuarantined(t, r, false, false)
}

// wantNoAnswer checks that both calls fail with an error that does not name the incarnation.
func wantNoAnswer(t *testing.T, r *replica, say string) {
	t.Helper()
	err := r.Mark(t.Context(), incarnationOne, "")
	quarantined, errs := r.Marks(t.Context(), []string{incarnationOne})
	if err == nil || errs == nil || quarantined != nil {
		t.Fatalf("quarantine: got %v; quarantined: got %v and %v; want errors", err, quarantined, errs)
	}
	if text := fmt.Sprint(err, errs); !strings.Contains(text, say) || strings.Contains(text, "10.1.2.3") || strings.Contains(text, "the password") {
		t.Errorf("got %q, want it to say %q and no name", text, say)
	}
}

func TestRedis_QuarantinedIncarnationsAreNotAskedForWhileTheBreakerIsOpen(t *testing.T) {
	s := redistest.Start(t)
	setLeast(s, leastCommands())
	r := openOn(t, s, Config{Username: "carryover", Password: "the password"})
	mustCheck(t, r)
	mustQuarantineIncarnation(t, r, incarnationOne)

	r.OpenBreaker()
	said := monitor(t, s, func() { wantNoAnswer(t, r, "not asked") })
	if said != "" {
		t.Errorf("while the breaker was open the server was told %q", said)
	}
	r.CloseBreaker()
	wantQuarantined(t, r, true, false)

	s.CLI("SET", r.MarksName(), "somebody's")
	for range 5 {
		wantNoAnswer(t, r, "WRONGTYPE")
	}
	if !r.Shares() {
		t.Error("the key of the quarantines keeps tickets from being shared")
	}
	s.Kill()
	for r.Shares() {
		wantNoAnswer(t, r, "")
	}
	wantNoAnswer(t, r, "not asked")
}

// As a connection that is out of step may answer.
func TestIncarnations_AnAnswerOfAnotherLengthIsRefused(t *testing.T) {
	_, r := startRedis(t)
	r.Client().AddHook(after(func(cmd redis.Cmder) {
		if values, ok := cmd.(*redis.SliceCmd); ok && cmd.Name() == "hmget" {
			values.SetVal(append(values.Val(), "another"))
		}
	}))
	if known, err := r.Marks(t.Context(), []string{"a", "b"}); err == nil || !strings.Contains(err.Error(), "3 values of 2 fields") {
		t.Errorf("got %v and the error %v, want the answer to be refused", known, err)
	}
}

// mustShareEpoch shares an epoch, and checks what it is then.
func mustShareEpoch(t *testing.T, r *replica, own int64, risen bool, want int64) {
	t.Helper()
	if err := r.ShareEpoch(t.Context(), own, risen); err != nil || r.Epoch() != want {
		t.Errorf("epoch %d, risen %t: got %d, error %v, want %d", own, risen, r.Epoch(), err, want)
	}
}

// sharesTheEpoch checks that each replica knows the highest epoch that any has risen to.
func sharesTheEpoch(t *testing.T, cfg Config) {
	t.Helper()
	const rise = int64(1_790_000_000_123)
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
}

// showsTheEpoch checks that a replica that finds or takes a ticket knows of every rise before.
func showsTheEpoch(t *testing.T, cfg Config) {
	t.Helper()
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
}

// What can't be known is doubt.
func TestRedis_AnEpochThatIsNoNumber(t *testing.T) {
	var log logtest.Log
	r := openRedis(t, Config{Addresses: []string{redistest.Start(t).Addr()}, Logger: log.Logger()})
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
	if log.Count("not authentic") == 0 {
		t.Error("nothing is said")
	}
	r.OpenBreaker()
	if err := r.ShareEpoch(t.Context(), 9, true); err == nil || r.Epoch() != 7 {
		t.Errorf("while the breaker is open: epoch %d, error %v", r.Epoch(), err)
	}
}

// Each replica hears what others pin, for as long as they tell it.
func TestRedis_ReplicasTellWhatTheyPin(t *testing.T) {
	s := redistest.Start(t)
	setLeast(s, leastCommands())
	cfg := Config{Addresses: []string{s.Addr()}, Username: "carryover", Password: "the password"}
	a, b := openRedis(t, cfg), openRedis(t, cfg)
	want := func(r *replica, tokens int, want string) {
		t.Helper()
		if got, err := r.SharePinned(t.Context(), incarnationOne, tokens); fmt.Sprint(got, err) != want {
			t.Errorf("got %v, error %v, want %s", got, err, want)
		}
	}
	want(a, 10, "[] <nil>")
	want(b, 20, "[10] <nil>")
	want(a, 0, "[20] <nil>")
	want(b, 1<<40, "[0] <nil>")
	key := strings.TrimSpace(s.CLI("KEYS", "*:pinned:*"))
	notes := strings.Fields(s.CLI("HGET", key, "0i"))
	for _, other := range []string{"x", notes[0] + " 1790000000000 5;", notes[0] + " 9990000000000 5;", notes[0] + " " + notes[1] + " -5;"} {
		s.CLI("HSET", key, "0i", other) // of before, of a clock that was set, or forged
		want(a, 10, "[] <nil>")
	}
}
