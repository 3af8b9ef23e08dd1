package kvready

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"carryover/upstream"
	"carryover/upstream/zmq/zmtp/zmqtest"
)

// modelWait is what a wait is, in the simplest words.
type modelWait struct {
	arrival   upstream.Arrival
	want, got int
	ranks     map[int]bool
	failed    bool
}

// over says what Ready is to say.
func (m *modelWait) over() bool { return m.failed || m.got >= m.want }

// Random histories of few ids against a model: nothing is ever ready too early or too late.
func TestWaits_AgreeWithAModel(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := New(Config{})
		model, closed := map[string]*modelWait{}, map[string]upstream.Arrival{}
		for step := range 60 {
			id := fmt.Sprint("id ", random.IntN(4))
			m := model[id]
			switch random.IntN(7) {
			case 0:
				if m == nil {
					want := 1 + random.IntN(3)
					model[id] = &modelWait{arrival: w.Expect(id, want), want: want, ranks: map[int]bool{}}
					if old := closed[id]; old != nil {
						old.Close() // once more leaves the new one
					}
				}
			case 1, 2, 3:
				w.Notify(notif("ProxyNotif", id))
				if m != nil && !m.over() {
					m.got++
				}
			case 4:
				rank := random.IntN(3)
				w.Notify(status(id, "READY", rank))
				if m != nil && !m.over() && !m.ranks[rank] {
					m.ranks[rank] = true
					m.got++
				}
			case 5:
				w.Notify(status(id, "FAILED", 0))
				if m != nil && !m.over() {
					m.failed = true
				}
			case 6:
				if m != nil && random.IntN(2) == 0 {
					m.arrival.Close()
					closed[id] = m.arrival
					delete(model, id)
				}
			}
			for id, m := range model {
				over, err := isReady(m.arrival)
				if over != m.over() || over && (err != nil) != m.failed {
					t.Fatalf("seed %d, step %d, %s: got ready %v, error %v, want %+v", seed, step, id, over, err, m)
				}
			}
		}
		balanced(t, w.Stats())
		if n := w.Stats().Waiting; n != len(model) {
			t.Fatalf("seed %d: %d waits, want %d", seed, n, len(model))
		}
	}
}

// Many turns at once, with stale notifications, double ones and turns that give up: each that stays becomes ready, and none
// before the last of its own notifications was sent.
func TestWaits_ManyAtOnce(t *testing.T) {
	w := New(Config{})
	const turns, workers = 64, 3
	ctx, cancel := context.WithTimeout(t.Context(), zmqtest.Limit)
	defer cancel()
	var all sync.WaitGroup
	for turn := range turns {
		all.Go(func() {
			for round := range 50 {
				id := fmt.Sprint(turn, " ", round)
				a := w.Expect(id, workers)
				var sent atomic.Int64
				var senders sync.WaitGroup
				for range workers {
					senders.Go(func() {
						w.Notify(notif("ProxyNotif", fmt.Sprint("stale ", id)))
						sent.Add(1)
						w.Notify(notif("ProxyNotif", id))
					})
				}
				if turn%4 == 0 {
					senders.Go(a.Close)
				}
				err := a.Ready(ctx)
				if err == nil && sent.Load() != workers {
					t.Errorf("%s: ready after %d of %d notifications", id, sent.Load(), workers)
				}
				if err != nil && (turn%4 != 0 || errors.Is(err, context.DeadlineExceeded)) {
					t.Errorf("%s: %v", id, err)
				}
				a.Close()
				senders.Wait()
			}
		})
	}
	all.Wait()
	s := w.Stats()
	balanced(t, s)
	if s.Waiting != 0 || s.Received != 50*turns*workers*2 {
		t.Errorf("got %+v", s)
	}
}

// liveHeap returns the bytes that are in use.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Ids that nobody expects leave nothing behind.
func TestWaits_UnknownIDsTakeNoMemory(t *testing.T) {
	const count = 100_000
	w := New(Config{Relay: relayTo(nil)}) // whose queue is full soon
	a := w.Expect("mine", 1)
	random := rand.New(rand.NewPCG(1, 2))
	frame := notif("ProxyNotif", "12345678901234567890123456789012")
	before := liveHeap()
	for range count {
		copy(frame[len(frame)-32:], hex.AppendEncode(nil, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, random.Uint64()), random.Uint64())))
		w.Notify(frame)
	}
	if grown := liveHeap() - before; grown > 1<<20 {
		t.Errorf("%d unknown ids take %d bytes", count, grown)
	}
	wantReady(t, a, false)
	w.Notify(notif("ProxyNotif", "mine"))
	wantReady(t, a, true)
	if s := w.Stats(); s.Unknown != count || s.Waiting != 1 {
		t.Errorf("got %+v", s)
	}
	a.Close()
}
