package e2e

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// endless are decode instances whose streams go on until their clients leave.
func endless(c *vllmsim.Config) { c.Timing.InterToken = time.Hour }

// waits waits until so many turns wait to begin, and so many for an instance.
func (o *operated) waits(t *testing.T, toBegin, forInstance int) {
	t.Helper()
	var begin, instance int
	if !testrig.Eventually(func() bool {
		begin, instance = o.proxy.Server.Waiting()
		return begin == toBegin && instance == forInstance
	}) {
		t.Fatalf("%d turns wait to begin and %d for an instance, want %d and %d", begin, instance, toBegin, forInstance)
	}
}

// wantRefused checks that a turn was refused, and told when to come again.
func wantRefused(t *testing.T, a *answered, status int, code string) {
	t.Helper()
	if a == nil {
		t.Errorf("got a stream, want status %d, %s", status, code)
		return
	}
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != status || a.code != code || err != nil || seconds < 1 || seconds > 30 {
		t.Errorf("got status %d, code %q, Retry-After %q, want %d, %s and a time", a.status, a.code, a.header.Get("Retry-After"), status, code)
	}
}

// await returns what a client sees first: nil for a stream, or an answer.
func await(t *testing.T, began chan *answered) *answered {
	t.Helper()
	select {
	case a := <-began:
		return a
	case <-time.After(time.Minute):
		t.Fatal("nothing after a minute")
		return nil
	}
}

// brief is a turn that decode answers at once however slow it is.
func brief() map[string]any {
	return map[string]any{"model": "sim", "messages": []json.RawMessage{question("Now. SAY yes")}, "max_tokens": 1}
}

// A tenant that has all places and a queue of its own does not keep another one from the next place, and the other's turn says how
// long it has waited. That holds for places of the server and for those of an instance.
func TestQueue_GreedyTenantWaits(t *testing.T) {
	for name, row := range map[string]struct {
		flag     string
		instance bool
	}{"places of the server": {flag: "--max-streams"}, "places of an instance": {"--max-per-instance", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startOperated(t, rigConfig{prefill: alike(1, asConfigured), decode: alike(1, endless), flags: []string{row.flag, "3"}}, "")
			waits := func(n int) {
				t.Helper()
				if row.instance {
					o.waits(t, 0, n)
				} else {
					o.waits(t, n, 0)
				}
			}
			running := o.crowd(t, "greedy", 3)
			waiting := &held{}
			var greedy []chan *answered
			for i := range 6 {
				greedy = append(greedy, o.open(t, waiting, "greedy"))
				waits(i + 1)
			}
			type ended struct {
				a      *answered
				queued time.Duration
			}
			polite := make(chan ended, 1) // one turn
			go func() {
				a, record := o.send(t, "polite", brief())
				polite <- ended{a, record.Queued}
			}()
			waits(7)
			running.cancels[0]()
			select {
			case p := <-polite:
				if p.a.status != http.StatusOK {
					t.Errorf("the other tenant's turn: got status %d: %.300s", p.a.status, p.a.raw)
				}
				if timing := p.a.header.Get("Server-Timing"); p.queued <= 0 || !strings.HasPrefix(timing, "queue;dur=") {
					t.Errorf("the other tenant's turn has waited: it tells %q, the log %s", timing, p.queued)
				}
			case <-time.After(time.Minute):
				t.Fatal("the other tenant's turn is not served")
			}
			// What it left goes to the greedy one's oldest turn.
			if a := await(t, greedy[0]); a != nil {
				t.Errorf("the oldest turn that waited: got status %d", a.status)
			}
			waits(5)
			// Those that wait go first: a place that is freed before would be the next one's, whose client leaves in the middle of
			// prefill then.
			for i := len(greedy) - 1; i > 0; i-- {
				waiting.cancels[i]()
				waits(i - 1)
			}
			waiting.leave()
			running.leave()
			o.verify(t, pins{unused: 1})
		})
	}
}

// What finds no place is told when to come again: in a full queue, after its time, and above its tenant's limit. What leaves holds
// nothing.
func TestQueue_Bounds(t *testing.T) {
	t.Parallel()
	text := func(queue, perTenant string) string {
		return "limits: {max_queue: " + queue + ", queue_timeout: 60s, max_per_tenant: " + perTenant + "}\n"
	}
	o := startOperated(t, rigConfig{prefill: alike(1, asConfigured), decode: alike(1, endless), flags: []string{"--max-streams", "2"}}, text("2", "0"))
	running := o.crowd(t, "a", 2)
	line := &held{}
	first, second := o.open(t, line, "a"), o.open(t, line, "a")
	o.waits(t, 2, 0)
	a, _ := o.send(t, "a", brief())
	wantRefused(t, a, http.StatusServiceUnavailable, "queue_full")
	// Another tenant may wait: the newest turn of the one with most goes.
	third := o.open(t, line, "b")
	var turnedAway *answered
	select {
	case turnedAway = <-first:
	case turnedAway = <-second:
	case <-time.After(time.Minute):
		t.Fatal("no turn makes room")
	}
	wantRefused(t, turnedAway, http.StatusServiceUnavailable, "queue_full")
	o.waits(t, 2, 0)

	// One that leaves frees its place in the line, and reaches no engine.
	asked := o.sum(t, "")["requests"]
	line.leave()
	o.waits(t, 0, 0)
	if got := await(t, third); got.ends != endsLeft {
		t.Errorf("the client that left saw %d", got.status)
	}
	if got := o.sum(t, "")["requests"]; got != asked {
		t.Errorf("engines got %d requests of clients that left while they waited", got-asked)
	}
	if got := o.shows(t, o.decode[0]).InFlight; got != 2 {
		t.Errorf("%d turns in flight, want the two that stream", got)
	}

	o.reload(t, text("10", "2"))
	a, _ = o.send(t, "a", brief())
	wantRefused(t, a, http.StatusTooManyRequests, "tenant_limit")
	o.reload(t, "limits: {queue_timeout: 50ms}\n")
	a, record := o.send(t, "b", brief())
	wantRefused(t, a, http.StatusServiceUnavailable, "queue_timeout")
	if record.Queued < 50*time.Millisecond || !strings.HasPrefix(a.header.Get("Server-Timing"), "queue;dur=") {
		t.Errorf("it has waited %s and tells %q", record.Queued, a.header.Get("Server-Timing"))
	}
	running.leave()
	if a, _ = o.send(t, "b", brief()); a.status != http.StatusOK {
		t.Errorf("with all places free: got status %d", a.status)
	}
	o.verify(t, pins{unused: 1})
}
