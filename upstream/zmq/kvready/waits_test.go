package kvready

import (
	"carryover/logtest"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carryover/upstream"
	"carryover/upstream/zmq/zmtp/zmqtest"
)

// What LMCache 0.5.6 has sent itself (testdata/lmcache-notification.json), and the bytes of msgspec's rules for its classes.
func TestWaits_ReadsWhatLMCacheSends(t *testing.T) {
	var recorded struct {
		FramesHex []string `json:"frames_hex"`
		Decoded   struct {
			ReqID string `json:"req_id"`
		} `json:"decoded"`
	}
	file, err := os.ReadFile("testdata/lmcache-notification.json")
	zmqtest.Must(t, errors.Join(err, json.Unmarshal(file, &recorded)))
	for digits, id := range map[string]string{
		recorded.FramesHex[0]: recorded.Decoded.ReqID,
		"82a474797065aa50726f78794e6f746966a67265715f6964a131":                                                                         "1",
		"82a474797065ae4e69786c50726f78794e6f746966a67265715f6964a131":                                                                 "1",
		"82a474797065aa50726f78794e6f746966a67265715f6964d92433663262386331652d376134342d346330642d396636652d326231643561396337653130": "3f2b8c1e-7a44-4c0d-9f6e-2b1d5a9c7e10",
		"81a67265715f6964a131": "1",
	} {
		frame, err := hex.DecodeString(digits)
		zmqtest.Must(t, err)
		w := New(Config{})
		a := w.Expect(id, 1)
		wantReady(t, a, false)
		w.Notify(frame)
		wantReady(t, a, true)
		wantStats(t, w, Stats{Received: 1, Counted: 1, Waiting: 1})
		a.Close()
	}
}

// Frames that say nothing of an arrival, each with what it is counted as.
func TestWaits_RefusesEverythingElse(t *testing.T) {
	const id = "the id"
	of := func(members string) []byte { return zmqtest.Pack(`{"req_id":"the id",` + members + `}`) }
	for want, frames := range map[Stats]map[string][]byte{
		{Received: 1, Ignored: 1, Waiting: 1}: {
			"CancelNotif":               of(`"type":"CancelNotif","keys":"some"`),
			"AllocRequest":              of(`"type":"AllocRequest"`),
			"a lower case type":         of(`"type":"proxynotif"`),
			"an empty type":             of(`"type":""`),
			"a type that is nil":        of(`"type":null`),
			"a type that is a number":   of(`"type":1`),
			"a status of no state":      of(`"type":"StoragePDStatus"`),
			"a status of another state": status(id, "STAGED", 0),
			"a status of no rank":       of(`"type":"StoragePDStatus","state":"READY"`),
		},
		{Received: 1, Malformed: 1, Waiting: 1}: {
			"no id":                  notif("ProxyNotif", ""),
			"a long id":              notif("ProxyNotif", strings.Repeat("x", 257)),
			"an id that is a number": zmqtest.Pack(`{"req_id":1}`),
			"an id that is no text":  []byte("\x81\xa6req_id\xa1\xff"),
			"an id of bytes":         zmqtest.Pack(`{"req_id":"0x61"}`),
			"an id that is a map":    zmqtest.Pack(`{"req_id":{"req_id":"the id"}}`),
			"no members":             zmqtest.Pack("{}"),
			"an array":               zmqtest.Pack(`[{"req_id":"the id"}]`),
			"a text":                 zmqtest.Pack(`"the id"`),
			"JSON":                   []byte(`{"type":"ProxyNotif","req_id":"the id"}`),
			"nothing":                nil,
			"more behind it":         append(notif("ProxyNotif", id), 0xc0),
			"an end that is missing": notif("ProxyNotif", id)[:20],
			"a map of 2^32 - 1":      []byte{0xdf, 0xff, 0xff, 0xff, 0xff, 0xa0, 0xc0},
			"arrays in arrays":       []byte("\x81\xa1x" + strings.Repeat("\x91", 4000)),
		},
	} {
		for name, frame := range frames {
			t.Run(name, func(t *testing.T) {
				var log logtest.Log
				w := New(Config{Logger: log.Logger(), Relay: relayTo(nil)})
				a := w.Expect(id, 1)
				defer a.Close()
				w.Notify(frame)
				wantReady(t, a, false)
				wantStats(t, w, want)
				w.Notify(frame)
				if got := log.Count("is not a notification"); got != int(want.Malformed) {
					t.Errorf("got %d lines, want %d, and 1 a minute", got, want.Malformed)
				}
			})
		}
	}
}

// Workers can't be told apart, so their notifications are counted.
func TestWaits_WaitsForEachWorker(t *testing.T) {
	var log logtest.Log
	w := New(Config{Logger: log.Logger()})
	a, other := w.Expect("a", 4), w.Expect("b", 2)
	for range 3 {
		w.Notify(notif("ProxyNotif", "a"))
		wantReady(t, a, false)
	}
	w.Notify(notif("ProxyNotif", "b"))
	w.Notify(notif("ProxyNotif", "a"))
	wantReady(t, a, true)
	wantReady(t, a, true)
	wantReady(t, other, false)
	if log.Count("too early") != 0 {
		t.Error("a warning before there is one too many")
	}
	w.Notify(notif("ProxyNotif", "a"))
	w.Notify(notif("ProxyNotif", "a"))
	if got := log.Count("too early"); got != 1 {
		t.Errorf("got %d warnings of one too many, want 1 a minute", got)
	}
	wantStats(t, w, Stats{Received: 7, Counted: 5, Surplus: 2, Waiting: 2})
	a.Close()
	w.Notify(notif("ProxyNotif", "a"))
	wantStats(t, w, Stats{Received: 8, Counted: 5, Surplus: 2, Unknown: 1, Waiting: 1})
	other.Close()
	less := w.Expect("a", -1) // is one
	wantReady(t, less, false)
	w.Notify(notif("", "a"))
	wantReady(t, less, true)
	less.Close()
}

// A wait may be over before it is asked for, or long after; then the context ends it.
func TestWaits_ReadyBeforeAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{})
		early := w.Expect("early", 1)
		w.Notify(notif("ProxyNotif", "early"))
		if err := early.Ready(t.Context()); err != nil {
			t.Errorf("early: %v", err)
		}
		early.Close()

		late := w.Expect("late", 1)
		go func() {
			<-time.After(time.Second)
			w.Notify(notif("ProxyNotif", "late"))
		}()
		begin := time.Now()
		if err := late.Ready(t.Context()); err != nil || time.Since(begin) != time.Second {
			t.Errorf("late: got %v after %v", err, time.Since(begin))
		}
		late.Close()

		never := w.Expect("never", 2)
		w.Notify(notif("ProxyNotif", "never"))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, zmqtest.ErrEnds)
		defer cancel()
		if err := never.Ready(ctx); !errors.Is(err, zmqtest.ErrEnds) {
			t.Errorf("never: got %v, want %v", err, zmqtest.ErrEnds)
		}
		w.Notify(notif("ProxyNotif", "never"))
		if err := never.Ready(ctx); err != nil { // asked again, after the context's end: it has arrived
			t.Errorf("never: got %v", err)
		}
		never.Close()

		closed := w.Expect("closed", 1)
		go func() {
			<-time.After(time.Second)
			closed.Close()
			closed.Close()
		}()
		if err := closed.Ready(t.Context()); err == nil {
			t.Error("ready after it was closed")
		}
		w.Notify(notif("ProxyNotif", "closed"))
		wantStats(t, w, Stats{Received: 5, Counted: 4, Unknown: 1})
	})
}

func TestWaits_RefusesWhatItCannotWaitFor(t *testing.T) {
	w := New(Config{})
	first, second := w.Expect("1", 1), w.Expect("2", 1)
	var others []upstream.Arrival
	for n := range maxWaits - 2 {
		others = append(others, w.Expect(fmt.Sprint("other-", n), 1))
	}
	for name, a := range map[string]upstream.Arrival{
		"no id": w.Expect("", 1), "a long id": w.Expect(strings.Repeat("x", 257), 1), "twice": w.Expect("1", 1), "too many": w.Expect("3", 1),
	} {
		if over, err := isReady(a); !over || err == nil {
			t.Errorf("%s: ready %v, error %v", name, over, err)
		}
		a.Close()
	}
	w.Notify(notif("ProxyNotif", "1"))
	wantReady(t, first, true)
	wantReady(t, second, false)
	first.Close()
	third := w.Expect("3", 1)
	first.Close() // once more does no harm
	w.Notify(notif("ProxyNotif", "3"))
	wantReady(t, third, true)
	for _, a := range append(others, second, third) {
		a.Close()
	}
	if n := w.Stats().Waiting; n != 0 {
		t.Errorf("%d waits are left", n)
	}
}
