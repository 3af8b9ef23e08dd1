package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// blockUses sees every prefill leg and hand-back. It counts how often the blocks of each answer are named by one, to be read or to be released,
// and knows of each answer whether the program was told that its blocks are pinned. All by remote_request_id.
type blockUses struct {
	upstream.Legs
	unsure func() bool // answers of now may be those of an incarnation that is not known; nil is never

	mu       sync.Mutex // guards what follows
	named    map[string]int
	reads    map[string]int // those of which prefill was to read something
	released int
	vain     int                 // legs that named blocks and failed: no other leg may name them
	told     map[string]toldPin  // what the program was told of
	open     map[string]struct{} // named by a leg that failed: decode may have freed it since
	settled  map[string]struct{} // named by a leg that was answered
}

func newUses() *blockUses {
	return &blockUses{
		named: map[string]int{}, reads: map[string]int{}, told: map[string]toldPin{}, open: map[string]struct{}{}, settled: map[string]struct{}{},
	}
}

// watch puts the uses between the program and its engines.
func (c *blockUses) watch(deps *server.Deps) {
	deps.Connector, c.Legs, deps.Legs = bookedConnector{deps.Connector, c}, deps.Legs, c
}

// Prefill implements upstream.Legs.
func (c *blockUses) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	return c.follow(ctx, leg, c.Legs.Prefill)
}

// HandBack implements upstream.Legs.
func (c *blockUses) HandBack(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	return c.follow(ctx, leg, c.Legs.HandBack)
}

// follow notes the beginning and the end of a leg.
func (c *blockUses) follow(
	ctx context.Context, leg upstream.Leg, send func(context.Context, upstream.Leg) (upstream.PrefillAnswer, error),
) (upstream.PrefillAnswer, error) {
	params := gjson.GetBytes(leg.Body.Bytes(), "kv_transfer_params")
	if leg.Instance.Role != upstream.RolePrefill || !params.Get("remote_block_ids").IsArray() { // a rescue names blocks of prefill
		return send(ctx, leg)
	}
	id := params.Get("remote_request_id").String()
	c.mu.Lock()
	if c.named[id]++; params.Get("remote_num_tokens").Raw == "0" {
		c.released++
	} else {
		c.reads[id]++
	}
	c.mu.Unlock()
	answer, err := send(ctx, leg)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.open, id)
		c.settled[id] = struct{}{}
		return answer, nil
	}
	c.open[id] = struct{}{}
	c.vain++
	if failed, is := errors.AsType[*upstream.LegError](err); is && failed.Paused() { // the engine has not looked at the params
		c.named[id]--
	}
	return answer, err
}

// failed is how many legs that named blocks have failed.
func (c *blockUses) failed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.vain
}

// twice lists the answers whose blocks were to be read more than once, or were named by more legs than may settle whether decode is free:
// that which had no answer, and two releases.
func (c *blockUses) twice() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.named {
		if c.reads[id] > 1 || n > 3 {
			ids = append(ids, fmt.Sprintf("%s by %d, read by %d", id, n, c.reads[id]))
		}
	}
	return ids
}

// startReleasing runs the program with releases on two instances of each role, and counts how often blocks are named.
func startReleasing(t *testing.T, cfg vllmsim.Config) (*rig, *blockUses) {
	t.Helper()
	cfg.Lease = time.Hour // what our own legs leave on prefill is counted at the end, which a busy machine reaches behind the usual 30 s
	seen := newUses()
	return startRig(t, rigConfig{cfg: cfg, prefills: 2, decodes: 2, alone: true, replace: seen.watch, flags: append([]string{"--release", "on"}, inTurn...)}), seen
}

// inTurn has instances of both roles take turns.
var inTurn = []string{"--routing-prefill", "round_robin", "--routing-decode", "round_robin"}

// releasingAtOnce has no unused ticket wait for the leg of a turn.
func releasingAtOnce(c *server.Config) { c.ReleaseBacklog = 0 }

// oneShot is a request that belongs to no conversation. It may be called from any
// goroutine.
func (r *rig) oneShot(ctx context.Context, n int) error {
	body := encode(object{
		"model": "sim", "max_tokens": 10, "stream": n%2 == 0, "messages": speech{question(fmt.Sprintf("%d %s", n, longText(n)))},
	})
	a, err := r.post(ctx, "/v1/chat/completions", nil, body, unwatched)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", a.status, a.raw)
	}
	return err
}

// within polls until a condition holds.
func within(limit time.Duration, holds func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); <-tick.C {
		if holds() {
			return true
		}
	}
	return holds()
}

// workedOff is longer than an unused ticket waits for a leg that can carry it.
const workedOff = 15 * time.Second

func TestRelease_PinsAreBoundedByLiveConversations(t *testing.T) {
	t.Parallel()
	const live, shots, atOnce, backlog = 6, 300, 6, 8
	r, seen := startReleasing(t, vllmsim.DefaultConfig())
	most, pinned := 0, func() int { return r.atDecode("pins") }
	var talks []*chatting
	for i := range live {
		talks = append(talks, r.talk(fmt.Sprint("live-", i)))
	}
	for round := range 5 {
		for _, c := range talks {
			c.turn(t)
		}
		group, ctx := errgroup.WithContext(t.Context())
		group.SetLimit(atOnce)
		for n := range shots / 5 {
			group.Go(func() error { return r.oneShot(ctx, round*shots+n) })
			most = max(most, pinned())
		}
		noError(t, group.Wait())
	}
	// Two decode instances, each with its backlog and with what is on its way.
	if bound := live + 2*(backlog+2*atOnce); most > bound {
		t.Errorf("decode pinned up to %d answers, want %d at most", most, bound)
	}
	if !within(4*workedOff, func() bool { return pinned() == live }) { // on a busy machine an engine may be down for a while
		t.Errorf("pins after the work is done: got %d, want %d, one for each conversation", pinned(), live)
		t.Errorf("%d tickets are not used; notes %q", r.store.unused(), r.turns.notes)
	}
	t.Logf("%d requests, at most %d pins at once, %d releases", live*5+shots, most, seen.released)
	for _, c := range talks {
		c.turn(t)
	}
	if twice := seen.twice(); len(twice) > 0 {
		t.Errorf("blocks named by more than one leg: %v", twice)
	}
	r.verifyReads(t)
}
