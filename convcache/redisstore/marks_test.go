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

func (r *replica) quarantine(incarnation string) {
	r.t.Helper()
	must(r.t, r.Mark(r.t.Context(), incarnation, ""))
}

// quarantined asks for both incarnations, and for one that is never quarantined.
func (r *replica) quarantined(one, two bool) {
	r.t.Helper()
	got, err := r.Marks(r.t.Context(), []string{incarnationOne, "http://10.1.2.4:8100 1.79e+09", incarnationTwo})
	_, first := got[incarnationOne]
	if _, second := got[incarnationTwo]; err != nil || first != one || second != two || len(got) > 2 {
		r.t.Errorf("quarantined: got %v, error %v, want %t and %t", got, err, one, two)
	}
}

// sharesMarks checks the rules of quarantines.
func sharesMarks(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Prefix = freshPrefix()
	r, other := openRedis(t, cfg), openRedis(t, cfg)
	r.check()
	other.check()
	r.quarantined(false, false)
	r.quarantine(incarnationTwo)
	r.quarantined(false, true)
	other.quarantined(false, true)
	other.quarantine(incarnationOne)
	other.quarantine(incarnationOne)
	r.quarantined(true, true)
	if got, err := r.Marks(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("quarantined of none: got %v, error %v", got, err)
	}
	if got := r.Len(); got != 0 {
		t.Errorf("conversations: got %d, want 0: quarantines are none", got)
	}
	tk := ticket(1, 10)
	r.put(k1, tk)
	if got := other.Len(); got != 1 {
		t.Errorf("conversations: got %d, want 1 besides the quarantines", got)
	}
	other.take(k1, tk)
}

// Values that a writer without the secret can write in place of quarantines.
func TestRedis_ForgedValuesQuarantineNothing(t *testing.T) {
	s := redistest.Start(t)
	var log logtest.Log
	r := openAt(t, s, Config{Logger: log.Logger()})
	marks := func(r *replica, incarnation string) (field, value string) {
		r.quarantine(incarnation)
		fields, err := r.Client().HGetAll(t.Context(), r.MarksName()).Result()
		must(t, err)
		must(t, r.Client().Del(t.Context(), r.MarksName()).Err())
		field = slices.Collect(maps.Keys(fields))[0]
		return field, fields[field]
	}
	_, foreign := marks(openAt(t, s, Config{Secret: mustSecret(t, "the secret of somebody else")}), incarnationTwo)
	second, whole := marks(r, incarnationTwo)
	_, first := marks(r, incarnationOne)
	r.put(Key{}, fullTicket(1))
	ticket := r.hash(Key{})
	flipped := []byte(whole)
	flipped[len(flipped)-1] ^= 1
	r.quarantine(incarnationOne)
	for what, value := range map[string]string{
		"nothing": "", "one": "1", "one byte less": whole[:len(whole)-1], "one more": whole + "x", "another bit": string(flipped),
		"that of another secret": foreign, "the value of another incarnation": first, "its field": second,
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
	r.quarantine(incarnationTwo) // and a replica that knows of it quarantines it again
	r.quarantined(true, true)
}

func TestRedis_QuarantinedIncarnationsEndAfterADay(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s)
	const day = 24 * time.Hour
	for _, incarnation := range []string{incarnationOne, incarnationTwo, incarnationOne} {
		r.quarantine(incarnation)
		if got, err := r.Client().PTTL(t.Context(), r.MarksName()).Result(); err != nil || got > day || got < day-time.Minute {
			t.Errorf("quarantines live for %v (error %v), want %v", got, err, day)
		}
		must(t, r.Client().PExpire(t.Context(), r.MarksName(), time.Hour).Err())
	}
	s.CLI("DEL", r.MarksName())
	r.quarantined(false, false)
}

// silent checks that both calls fail with an error that does not name the incarnation.
func (r *replica) silent(say string) {
	t := r.t
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
	r := openAt(t, s, Config{Username: "carryover", Password: "the password"})
	r.check()
	r.quarantine(incarnationOne)

	r.OpenBreaker()
	quiet(t, s, func() { r.silent("not asked") })
	r.CloseBreaker()
	r.quarantined(true, false)

	s.CLI("SET", r.MarksName(), "somebody's")
	for range 5 {
		r.silent("WRONGTYPE")
	}
	if !r.Shares() {
		t.Error("the key of the quarantines keeps tickets from being shared")
	}
	s.Kill()
	for r.Shares() {
		r.silent("")
	}
	r.silent("not asked")
}

// As a connection that is out of step may answer.
func TestIncarnations_AnAnswerOfAnotherLengthIsRefused(t *testing.T) {
	r := openAt(t, redistest.Start(t))
	r.Client().AddHook(after(func(cmd redis.Cmder) {
		if values, ok := cmd.(*redis.SliceCmd); ok && cmd.Name() == "hmget" {
			values.SetVal(append(values.Val(), "another"))
		}
	}))
	if known, err := r.Marks(t.Context(), []string{"a", "b"}); err == nil || !strings.Contains(err.Error(), "3 values of 2 fields") {
		t.Errorf("got %v and the error %v, want the answer to be refused", known, err)
	}
}

// rise shares an epoch, and checks what it is then.
func (r *replica) rise(own int64, risen bool, want int64) {
	r.t.Helper()
	if err := r.ShareEpoch(r.t.Context(), own, risen); err != nil || r.Epoch() != want {
		r.t.Errorf("epoch %d, risen %t: got %d, error %v, want %d", own, risen, r.Epoch(), err, want)
	}
}

// sharesTheEpoch checks that each replica knows the highest epoch that any has risen to.
func sharesTheEpoch(t *testing.T, cfg Config) {
	t.Helper()
	const rise = int64(1_790_000_000_123)
	cfg.Prefix = freshPrefix()
	r, other := openRedis(t, cfg), openRedis(t, cfg)
	r.check()
	other.check()
	r.rise(0, false, 0)
	all := cfg
	all.Username, all.Password = "", ""
	admin := openRedis(t, all).Client()
	if n, err := admin.Exists(t.Context(), r.EpochName()).Result(); err != nil || n != 0 {
		t.Errorf("%d keys before the first rise, error %v", n, err)
	}
	r.rise(rise, true, rise)
	other.rise(rise-5, true, rise+1) // which has risen at the same time
	r.rise(rise, false, rise+1)      // nothing takes it back
	if left, err := admin.PTTL(t.Context(), r.EpochName()).Result(); err != nil || left > 0 {
		t.Errorf("it lives for %v, error %v, want for ever", left, err)
	}
	if n := r.Len(); n != 0 {
		t.Errorf("%d conversations", n)
	}
	late := openRedis(t, cfg)
	late.check() // before it serves
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
		r.put(key(n), tk)
		other.rise(int64(10*n+1), true, int64(10*n+1))
		if looked := r.look(key(n)); looked[0].Epoch != int64(n) || r.Epoch() != int64(10*n+1) {
			t.Errorf("a look-up shows epoch %d of the ticket and %d of the fleet", looked[0].Epoch, r.Epoch())
		}
		other.rise(int64(10*n+5), true, int64(10*n+5))
		if taken := r.take(key(n), tk); taken.Epoch != int64(n) || r.Epoch() != int64(10*n+5) {
			t.Errorf("a take shows epoch %d of the ticket and %d of the fleet", taken.Epoch, r.Epoch())
		}
	}
}

// What can't be known is doubt.
func TestRedis_AnEpochThatIsNoNumber(t *testing.T) {
	var log logtest.Log
	r := openRedis(t, Config{Addresses: []string{redistest.Start(t).Addr()}, Logger: log.Logger()})
	tk := ticket(1, 10)
	r.put(k1, tk)
	r.rise(7, true, 7)
	for _, value := range []string{"", "x", "0x9", "1e300", "nan"} {
		must(t, r.Client().HSet(t.Context(), r.EpochName(), "0i", value).Err())
		r.take(k1, tk, Unavailable)
		r.put(k1, tk)
		r.rise(7, false, 7) // the replica that knows it writes it again
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
