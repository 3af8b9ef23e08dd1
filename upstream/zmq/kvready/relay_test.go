package kvready

import (
	"carryover/logtest"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

// relayTo is a relay that a function is.
type relayTo func(ctx context.Context, message string) error

func (f relayTo) Publish(ctx context.Context, message string) error { return f(ctx, message) }

// replicas are waits that share a relay, which reaches its sender too, as Redis does.
func replicas(tb testing.TB, n int) []*Waits {
	tb.Helper()
	all := make([]*Waits, n)
	relay := relayTo(func(_ context.Context, message string) error {
		for _, w := range all {
			w.Relayed(message)
		}
		return nil
	})
	for i := range all {
		all[i] = New(Config{Relay: relay})
	}
	for _, w := range all {
		zmqtest.Run(tb, w.Run)
	}
	return all
}

// A prefill's workers may be connected to replicas of which none waits.
func TestRelay_ReachesTheReplicaThatWaits(t *testing.T) {
	all := replicas(t, 3)
	plain, ranked, failed := all[0].Expect("plain", 2), all[1].Expect("ranked", 2), all[2].Expect("failed", 1)
	for _, w := range all[1:] {
		w.Notify(notif("ProxyNotif", "plain"))
	}
	await(t, plain)
	for range 2 {
		all[0].Notify(status("ranked", "READY", 0))
	}
	all[2].Notify(status("ranked", "READY", 7))
	await(t, ranked)
	all[0].Notify(status("failed", "CANCELLED", 0))
	ctx, cancel := context.WithTimeout(t.Context(), zmqtest.Limit)
	defer cancel()
	if err := failed.Ready(ctx); err == nil || !strings.HasSuffix(err.Error(), "CANCELLED") {
		t.Errorf("got %v, want a failure", err)
	}
	for i, w := range all {
		// Messages of other replicas may still be on their way: each is counted as received first.
		zmqtest.Eventually(t, "counts that add up", func() bool { return addsUp(w.Stats()) })
		if w.Stats().Counted+w.Stats().Failed == 0 {
			t.Errorf("replica %d has counted nothing", i)
		}
	}
}

// What comes from replicas goes to none, or they would send it round for ever.
func TestRelay_PublishesNothingThatWasPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var published atomic.Int64
		w := New(Config{Relay: relayTo(func(context.Context, string) error { published.Add(1); return nil })})
		stop := zmqtest.Run(t, w.Run)
		a := w.Expect("mine", 1)
		w.Relayed("nobody's")
		w.Relayed(string(status("nobody's", "READY", 1)))
		w.Relayed("mine")
		w.Notify(notif("ProxyNotif", "mine")) // one too many, and not unknown
		w.Notify(notif("CancelNotif", "nobody's"))
		w.Notify([]byte("rubbish"))
		w.Relayed("")
		w.Relayed("\x82")
		synctest.Wait()
		wantReady(t, a, true)
		if n := published.Load(); n != 0 {
			t.Errorf("published %d messages, want none", n)
		}
		w.Notify(notif("ProxyNotif", "another's"))
		synctest.Wait()
		if n := published.Load(); n != 1 {
			t.Errorf("published %d messages, want 1", n)
		}
		a.Close()
		wantStats(t, w, Stats{Received: 9, Counted: 1, Surplus: 1, Unknown: 3, Ignored: 1, Malformed: 3, Relayed: 5, Published: 1})
		stop()
	})
}

// A relay that hangs or fails costs nobody time: what comes beyond the queue is dropped and counted, nothing is sent twice.
func TestRelay_ThatHangsBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		calls := map[string]int{}
		w := New(Config{Logger: log.Logger(), Relay: relayTo(func(ctx context.Context, message string) error {
			calls[message]++
			<-ctx.Done()
			return ctx.Err()
		})})
		stop := zmqtest.Run(t, w.Run)
		begin := time.Now()
		const count = 5000
		for i := range count {
			w.Notify(notif("ProxyNotif", fmt.Sprint("id ", i)))
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("notifications waited for the relay for %v", took)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		wantStats(t, w, Stats{Received: count, Unknown: count, Unpublished: count})
		if n := len(calls); n < 1000 || n > 1100 {
			t.Errorf("%d messages were tried, want those of the queue", n)
		}
		for message, n := range calls {
			if n != 1 {
				t.Errorf("%q was sent %d times", message, n)
			}
		}
		if n := log.Count("do not reach"); n < 1 || n > 30 {
			t.Errorf("got %d lines in 17 minutes of failures, want 1 a minute", n)
		}
		stop()
	})
}

func TestRelay_RunEndsWithoutARelay(t *testing.T) {
	w := New(Config{})
	stop := zmqtest.Run(t, w.Run)
	w.Notify(notif("ProxyNotif", "x"))
	stop()
	wantStats(t, w, Stats{Received: 1, Unknown: 1})
}
