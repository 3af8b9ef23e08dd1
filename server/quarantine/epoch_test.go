package quarantine

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/events"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// newEpoch returns the epoch of a replica without Redis, or with what replicas share.
func newEpoch(t *testing.T, shared Shared) *Watch {
	t.Helper()
	secret, err := convcache.NewSecret([]byte("the secret of all replicas"))
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Secret: secret, Shared: shared, Fleet: fleet.New(fleet.Config{}), Tell: func(events.Kind, string) {}, Logger: slog.New(slog.DiscardHandler)})
}

// prefill returns an incarnation of prefill that is not known.
func prefill(t *testing.T) *fleet.Incarnation {
	t.Helper()
	engines := fleet.New(fleet.Config{})
	engines.Set([]upstream.Instance{{Name: "p", Role: upstream.RolePrefill, BaseURL: "http://10.1.2.3:8100"}})
	return engines.Engines(upstream.RolePrefill)[0].Last()
}

func TestEpoch_RisesOnceForAllLegsOfTheEpochBefore(t *testing.T) {
	e, before := newEpoch(t, nil), time.Now().UnixMilli()
	var legs sync.WaitGroup
	for range 8 { // legs that were under way together
		p := prefill(t)
		legs.Go(func() { e.Caught(p, 0, "turn") })
	}
	legs.Wait()
	first := e.Now()
	if first < before || first > time.Now().UnixMilli() || e.Quarantines.Load() != 8 {
		t.Fatalf("epoch %d after %d answers", first, e.Quarantines.Load())
	}
	e.Caught(prefill(t), 0, "turn") // a leg of the epoch before
	if e.Now() != first {
		t.Errorf("epoch %d, want %d still", e.Now(), first)
	}
	e.Caught(prefill(t), first, "turn")
	if e.Now() <= first {
		t.Errorf("epoch %d, want a later one than %d", e.Now(), first)
	}
	if p := prefill(t); e.Salt(e.Now(), p, nil) == e.Salt(first, p, nil) || e.Salt(0, p) != "" {
		t.Error("two epochs have one salt, or the time before the first has one")
	}
}

// replicas is what they share, of which none has a bound.
type replicas struct {
	mu    sync.Mutex // guards what follows
	down  bool
	epoch int64
	told  int64 // last
}

func (r *replicas) Mark(context.Context, string, string) error { return nil }

func (r *replicas) Marks(context.Context, []string) (map[string]string, error) { return nil, nil }

func (r *replicas) Epoch() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch
}

func (r *replicas) ShareEpoch(_ context.Context, own int64, risen bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return errors.New("down")
	}
	if risen {
		r.epoch++
	}
	r.epoch, r.told = max(r.epoch, own), own
	return nil
}

// Two replicas that find an engine each at the same time may have used tickets of both epochs.
func TestEpoch_RisesOfTwoReplicasAreTwo(t *testing.T) {
	shared := &replicas{down: true}
	a, b := newEpoch(t, shared), newEpoch(t, shared)
	a.Caught(prefill(t), 0, "turn")
	b.Caught(prefill(t), 0, "turn")
	if a.exchange(t.Context()) == nil || b.exchange(t.Context()) == nil {
		t.Fatal("shared what can't be shared")
	}
	shared.down = false
	if a.exchange(t.Context()) != nil {
		t.Fatal("not shared")
	}
	first := shared.Epoch()
	if b.exchange(t.Context()) != nil || shared.Epoch() <= first {
		t.Errorf("epoch %d, and %d behind the rise of the other replica", first, shared.Epoch())
	}
	last := shared.Epoch()
	if a.exchange(t.Context()) != nil || b.exchange(t.Context()) != nil || shared.Epoch() != last || a.Now() != last || b.Now() != last {
		t.Errorf("epochs %d and %d, shared %d, want %d", a.Now(), b.Now(), shared.Epoch(), last)
	}
	if shared.told != last { // which a failover may have lost
		t.Errorf("told of epoch %d, want %d again", shared.told, last)
	}
	if p := prefill(t); a.Salt(last, p) != b.Salt(last, p) {
		t.Error("replicas have salts of their own")
	}
}

func TestEpoch_StartedSince(t *testing.T) {
	const epoch = int64(1_790_000_000_500)
	for start, want := range map[string]bool{
		"": false, "nan": false, "-1.8e+09": false, "1.79e+09": false, "1.790000060e+09": false, "1.7900000605e+09": false,
		"1.7900000606e+09": true, "1790000061": true, "1.8e+09": true,
	} {
		if got := startedSince(start, epoch); got != want {
			t.Errorf("%q: got %t, want %t", start, got, want)
		}
	}
	if startedSince("1.8e+09", math.MaxInt64-startMargin.Milliseconds()) {
		t.Error("started since the end of time")
	}
}
