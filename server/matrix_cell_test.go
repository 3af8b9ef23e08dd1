package server_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// want is what a cell asserts.
type want struct {
	// What the client sees.
	gone       bool               // it has left; the log says how its turn ended
	unheard    bool               // it has left before there was a turn
	status     int                // 200 if 0
	code       string             // of the error body; of a stream that has begun, of its last event
	retryAfter string             // "" for none
	reuse      string             // X-KV-Reuse begins with it
	path       string             // and X-KV-Path with this
	cut        bool               // the answer breaks off
	body       func(l leg) string // what the client gets of the last decode leg, before an error event; nil is all that decodes says

	// What engines see: the kinds of the turn's legs, in order. See cell.legs. "first" is the leg that a ticket goes with.
	prefill, decode string
	rescued         bool // a leg of our own has taken, or has tried to take, a hand-over that decode has not taken

	// What is left.
	stored string // of the log line
	kept   bool   // the store has a ticket of the conversation
	unused bool   // decode has named blocks that no ticket in the store names; they wait for their release
	next   string // X-KV-Reuse of the conversation's next turn, "" if it follows from kept
	pair   string // X-KV-Reuse of the first ticket of another conversation, "" for a hit
	logged string // a word of the log
}

// cell is a fault with a variant, on a rig of its own.
type cell struct {
	*rig
	variant
	turns    int             // that were sent
	before   map[*engine]int // legs before the fault
	others   int             // conversations of others with a ticket
	leaver   *leaver
	atLegs   *legsSeam
	short    *shortLimits // of the leg that meets the fault, nil for none
	atLimits *shortLegs
	atStore  *storeSeam
	busy     atomic.Int64  // most attempts that a pick has found on an engine
	gate     chan struct{} // for faults that wait
	released bool
	leg      chan context.Context // of the decode leg that waits at the gate
}

// conversation is that of a cell's turn.
const conversation = "c"

// idle is a policy that picks the first candidate and notes how many attempts there are already.
type idle struct{ busy *atomic.Int64 }

func (p idle) Pick(candidates []upstream.Candidate, _ string) int {
	for _, c := range candidates {
		p.busy.Store(max(p.busy.Load(), int64(c.InFlight)))
	}
	return 0
}

func (f *fault) run(t *testing.T, v variant) {
	c := &cell{
		variant: v, turns: 1, before: map[*engine]int{}, leaver: newLeaver(t), atLegs: &legsSeam{}, atLimits: &shortLegs{}, atStore: &storeSeam{}, gate: make(chan struct{}),
		leg: make(chan context.Context, 1),
	}
	s := setup{
		probeless: true,
		fleet:     func(cfg *fleet.Config) { cfg.Prefill, cfg.Decode = idle{&c.busy}, idle{&c.busy} },
		deps: func(d *server.Deps) {
			c.atLimits.Legs, d.Legs = d.Legs, c.atLimits
			c.atLegs.Legs, d.Legs = d.Legs, c.atLegs
			c.atStore.Store, d.Store = d.Store, c.atStore
		},
	}
	if f.needs != nil {
		f.needs(c, &s)
	}
	inner := s.cfg
	s.cfg = func(cfg *server.Config) {
		releasing(cfg)
		if v.mode != "" {
			cfg.PrefillFailure = v.mode
		}
		if inner != nil {
			inner(cfg)
		}
	}
	c.rig = newRig(t, s)
	t.Cleanup(c.release) // before the engines close, which wait for what waits
	for _, e := range slices.Concat(c.prefill, c.decode) {
		c.engine(e).Refresh(t.Context())
	}
	learnShapes(t.Context(), c.deps)
	for _, e := range slices.Concat(c.prefill, c.decode) { // turns with a ticket ask it, and the fault is to meet a leg
		c.engine(e).Last().Capability.Probe(t.Context(), body.Chat, "")
	}
	if v.ticket {
		c.turns = 2
		c.wantOK(c.turn(conversation, 1, v.stream), "miss;reason=first_turn")
	} else {
		c.others = 1 // connections are warm all the same
		c.wantOK(c.turn("warm", 1, v.stream), "miss;reason=first_turn")
	}
	c.settled(1)
	for _, e := range slices.Concat(c.prefill, c.decode) {
		c.before[e] = len(e.seen())
	}
	w := f.want(v)
	c.atLimits.next.Store(c.short)
	f.begin(c)
	c.checkReply(f.asks(c), w)
	if !w.unheard {
		c.settled(2)
	}
	c.checkLegsOfTurn(w)
	c.checkLeft(w)
	if f.heal != nil {
		f.heal(c)
	}
	c.heal()
	c.checkAfter(w)
}

func (f *fault) asks(c *cell) reply {
	if f.ask != nil {
		return f.ask(c)
	}
	return c.again()
}

// again sends the turn that meets the fault.
func (c *cell) again() reply {
	c.t.Helper()
	return c.turn(conversation, c.turns, c.stream)
}

// release lets go on what waits at the gate.
func (c *cell) release() {
	if !c.released {
		c.released = true
		close(c.gate)
	}
}

// settled waits until n turns have ended and hold nothing.
func (c *cell) settled(n int) {
	c.t.Helper()
	c.until(func() bool {
		bytes, clients := c.server.Inflight()
		return c.lines() >= n && bytes == 0 && clients == 0
	})
}

// heal makes all engines well-behaved again, reached by connections of their own.
func (c *cell) heal() {
	c.release()
	for _, e := range slices.Concat(c.prefill, c.decode) {
		e.drop()
		e.always(prefills)
		if e.role == upstream.RoleDecode {
			e.always(decodes)
		}
	}
	c.deps.Legs.Close()
	for _, e := range slices.Concat(c.prefill, c.decode) {
		if e.door != nil {
			e.door.again()
		}
	}
	c.atLegs.beforePrefill, c.atLegs.afterPrefill = nil, nil
	c.atLimits.next.Store(nil)
	c.atStore.put = nil
}

func (c *cell) checkReply(p reply, w want) {
	c.t.Helper()
	status := max(w.status, http.StatusOK)
	last := c.lastDecode()
	switch {
	case w.gone:
		return
	case status != http.StatusOK:
		c.wantError(p, status, w.code)
		c.wantHeaders(p)
	case w.cut:
		rest := p.body
		if cutOff(c.t, p); w.code != "" {
			rest = lastError(c.t, p.body, w.code)
		} else if strings.Contains(p.body, `"error"`) {
			c.t.Errorf("got an error event in %.500q", p.body)
		}
		if w.body != nil && rest != w.body(last) {
			c.t.Errorf("got %.2000q\nbefore the end, want %.2000q", rest, w.body(last))
		}
	default:
		c.wantOK(p, w.reuse)
		if w.body == nil {
			w.body = c.says
		}
		if p.body != w.body(last) {
			c.t.Errorf("got\n%.2000s\nwant\n%.2000s", p.body, w.body(last))
		}
	}
	if status == http.StatusOK {
		c.wantHeaders(p)
	}
	if !strings.HasPrefix(p.reuse(), w.reuse) {
		c.t.Errorf("got X-KV-Reuse %q, want %q", p.reuse(), w.reuse)
	}
	if got := p.header.Get("X-Kv-Path"); !strings.HasPrefix(got, w.path) {
		c.t.Errorf("got X-KV-Path %q, want %q", got, w.path)
	}
	wantRetryAfter(c.t, p, w.retryAfter)
	c.wantSealed(p)
}

// says is what a client gets of a decode leg that goes well.
func (c *cell) says(l leg) string {
	if c.stream {
		return chatBytes(l)
	}
	return wholeAnswer(l) + "}"
}

func (c *cell) lastDecode() (last leg) {
	for _, e := range c.decode {
		for _, l := range e.seen()[c.before[e]:] {
			if !l.rescues() {
				last = l
			}
		}
	}
	return last
}

func (c *cell) checkLegsOfTurn(w want) {
	c.t.Helper()
	first := "plain"
	if c.ticket {
		first = "ticket"
	}
	if got, want := c.legs(c.prefill), strings.ReplaceAll(w.prefill, "first", first); got != want {
		c.t.Errorf("got prefill legs %q, want %q", got, want)
	}
	if got := c.legs(c.decode); got != w.decode {
		c.t.Errorf("got decode legs %q, want %q", got, w.decode)
	}
	rescued := func() bool {
		return slices.ContainsFunc(c.decode, func(e *engine) bool { return slices.ContainsFunc(e.seen()[c.before[e]:], leg.rescues) })
	}
	if w.rescued {
		c.until(rescued)
	} else if rescued() {
		c.t.Error("a hand-over is rescued that decode has taken")
	}
}

// legs are the kinds of the legs that engines saw since the fault, but for rescues: of prefill "ticket" and "plain", of decode "handed" and
// "alone". A leg at the second engine has "@1" behind it.
func (c *cell) legs(engines []*engine) string {
	var kinds []string
	for i, e := range engines {
		for _, l := range e.seen()[c.before[e]:] {
			kind := c.kind(e, l)
			if l.rescues() {
				continue
			}
			if i > 0 {
				kind += fmt.Sprintf("@%d", i)
			}
			kinds = append(kinds, kind)
		}
	}
	return strings.Join(kinds, " ")
}

func (c *cell) kind(e *engine, l leg) string {
	p := l.params()
	blocks, has := p["remote_block_ids"]
	switch {
	case e.role == upstream.RolePrefill && l.ticket() != "":
		return "ticket"
	case e.role == upstream.RolePrefill:
		if !has || blocks != nil || p["remote_engine_id"] != nil || p["remote_host"] != nil {
			c.t.Errorf("got prefill params %v, want the null template", p)
		}
		return "plain"
	case !strings.Contains(l.body, "kv_transfer_params"):
		return "alone"
	}
	// The hand-over is that of the prefill leg with the same request id.
	attempt, _, _ := strings.Cut(l.id(), "-rescue")
	if got, want := p["remote_request_id"], "chatcmpl-"+attempt; got != want {
		c.t.Errorf("got hand-over %v on a decode leg, want %s", got, want)
	}
	return "handed"
}

// checkLeft checks the state behind the turn.
func (c *cell) checkLeft(w want) {
	c.t.Helper()
	if w.stored != "" {
		c.wantStored(2, w.stored)
	}
	if got := c.store.Len() > c.others; got != w.kept {
		c.t.Errorf("the store has a ticket of the conversation: %v, want %v", got, w.kept)
	}
	pinned, open := c.waiting()
	if w.rescued { // the answer of a rescue names blocks of decode
		c.until(func() bool {
			pinned, open = c.waiting()
			return pinned > open || c.log.count("wait for their lease") > 0
		})
	} else if got := pinned > open; got != w.unused {
		c.t.Errorf("blocks wait for their release: %v, want %v", got, w.unused)
	}
	if open > 0 && !c.ticket {
		c.t.Error("it is open whether decode has freed blocks that no leg has named")
	}
	// A turn's line comes behind its answer. These end with the log, if they wait in vain.
	if w.gone && !w.unheard {
		c.until(func() bool { return c.log.count(`"msg":"turn"`, fmt.Sprintf(`"status":%d`, w.status)) > 0 })
	}
	if w.logged != "" {
		c.until(func() bool { return c.log.count(w.logged) > 0 })
	}
}

// waiting is how many blocks wait for their release, and of how many it is open whether they are free.
func (c *cell) waiting() (pinned, open int) {
	for _, decode := range c.deps.Fleet.Holders.All() {
		_, tokens, unsure := c.server.Pins.Due(decode)
		pinned, open = pinned+tokens, open+unsure
	}
	return pinned, open
}

// checkAfter checks what the fault has left of the proxy: the next turn of the conversation, and whether another one may use tickets.
func (c *cell) checkAfter(w want) {
	c.t.Helper()
	c.busy.Store(0)
	c.wantOK(c.turn("another", 1, c.stream), "miss;reason=first_turn")
	if n := c.busy.Load(); n != 0 {
		c.t.Errorf("%d attempts are counted in flight on an engine that has none", n)
	}
	pair := "hit;"
	if w.pair != "" {
		pair = w.pair
	}
	c.wantOK(c.turn("another", 2, c.stream), pair)
	next := w.next
	switch {
	case next != "":
	case w.kept:
		next = "hit;"
	default:
		next = "miss;reason=nothing_stored"
	}
	c.wantOK(c.turn(conversation, c.turns+1, c.stream), next)
}
