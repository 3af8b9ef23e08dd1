package server_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// cell is a fault with a variant, on a rig of its own.
type cell struct {
	*rig
	variant
	shows    func(leg) string // see fault
	want     map[string]string
	turns    int             // that were sent
	before   map[*engine]int // legs before the fault
	others   int             // conversations of others with a ticket
	leaver   *leaver
	atLegs   legsSeam
	atLimits shortLegs
	atStore  storeSeam
	busy     atomic.Int64  // most attempts that a pick has found on an engine
	gate     chan struct{} // for faults that wait
	released bool
	waiting  chan context.Context // of what waits at the gate
}

// conversation is that of a cell's turn.
const conversation = "c"

// Pick picks the first candidate and notes how many attempts there are already.
func (c *cell) Pick(candidates []upstream.Candidate, _ string) int {
	for _, candidate := range candidates {
		c.busy.Store(max(c.busy.Load(), int64(candidate.InFlight)))
	}
	return 0
}

// all are the engines of a cell.
func (c *cell) all() []*engine { return slices.Concat(c.prefill, c.decode) }

func (f *fault) run(t *testing.T, v variant) {
	c := &cell{
		variant: v, shows: f.shows, want: f.expects(t, v), turns: 1, before: map[*engine]int{}, leaver: newLeaver(t), gate: make(chan struct{}),
		waiting: make(chan context.Context, 1),
	}
	s := f.setup
	s.probeless = true
	if f.watched {
		s.front = contexts(c.leaver.arrived)
	}
	s.fleet = func(cfg *fleet.Config) { cfg.Prefill, cfg.Decode, cfg.AskLimit = c, c, 4*soonOver }
	s.deps = func(d *server.Deps) {
		c.atLimits.Legs, d.Legs = d.Legs, &c.atLimits
		c.atLegs.Legs, d.Legs = d.Legs, &c.atLegs
		c.atStore.Store, d.Store = d.Store, &c.atStore
	}
	s.cfg = func(cfg *server.Config) {
		releasing(cfg)
		cfg.PrefillFailure = cmp.Or(v.mode, cfg.PrefillFailure)
		if f.setup.cfg != nil {
			f.setup.cfg(cfg)
		}
	}
	c.rig = newRig(t, s)
	t.Cleanup(c.release) // before the engines close, which wait for what waits
	for _, e := range c.all() {
		c.engine(e).Refresh(t.Context())
		c.engine(e).Last().Capability.Probe(t.Context(), body.Chat, "") // turns with a ticket ask it, and the fault is to meet a leg
	}
	learnShapes(t.Context(), c.deps)
	first := conversation
	if v.ticket {
		c.turns = 2
	} else {
		c.others, first = 1, "warm" // connections are warm all the same
	}
	c.wantOK(c.turn(first, 1, v.stream), "miss;reason=first_turn")
	c.settled(1)
	for _, e := range c.all() {
		c.before[e] = len(e.seen())
	}
	c.atLimits.next.Store(f.short)
	f.begin(c)
	ask := f.ask
	if ask == nil {
		ask = (*cell).again
	}
	c.checkReply(ask(c))
	if !c.wants("unheard") {
		c.settled(2)
	}
	c.checkLegsOfTurn()
	c.checkLeft()
	c.mend()
	if f.heal != nil {
		f.heal(c)
	}
	c.checkAfter()
}

// wants reports whether a cell asserts something that is so or not.
func (c *cell) wants(word string) bool { return c.want[word] != "" }

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

// mend makes all engines well-behaved again, reached by connections of their own.
func (c *cell) mend() {
	c.release()
	for _, e := range c.all() {
		e.drop()
		e.always(prefills)
		if e.role == upstream.RoleDecode {
			e.always(decodes)
		}
	}
	c.deps.Legs.Close()
	for _, e := range c.all() {
		if e.door != nil {
			e.door.again()
		}
	}
	c.atLegs.beforePrefill, c.atLegs.afterPrefill = nil, nil
	c.atLimits.next.Store(nil)
	c.atStore.put = nil
}

func (c *cell) checkReply(p reply) {
	c.t.Helper()
	if c.wants("gone") {
		return
	}
	said := p.body
	_, last, _ := c.saw(c.decode)
	switch {
	case c.want["status"] != "200":
		status, _ := strconv.Atoi(c.want["status"])
		c.wantError(p, status, c.want["code"])
	case c.wants("cut"):
		if cutOff(c.t, p); c.wants("code") {
			said = lastError(c.t, p.body, c.want["code"])
		} else if strings.Contains(p.body, `"error"`) {
			c.t.Errorf("got an error event in %.500q", p.body)
		}
	default:
		if c.wantOK(p, ""); c.shows == nil {
			c.shows = c.says
		}
	}
	if c.shows != nil && said != c.shows(last) {
		c.t.Errorf("got\n%.2000s\nwant\n%.2000s", said, c.shows(last))
	}
	c.wantHeaders(p)
	if !strings.HasPrefix(p.reuse(), c.want["reuse"]) {
		c.t.Errorf("got X-KV-Reuse %q, want %q", p.reuse(), c.want["reuse"])
	}
	if got := p.header.Get("X-Kv-Path"); !strings.HasPrefix(got, c.want["path"]) {
		c.t.Errorf("got X-KV-Path %q, want %q", got, c.want["path"])
	}
	wantRetryAfter(c.t, p, c.want["retry"])
	c.wantSealed(p)
}

// says is what a client gets of a decode leg that goes well.
func (c *cell) says(l leg) string {
	if c.stream {
		return chatBytes(l)
	}
	return wholeAnswer(l) + "}"
}

func (c *cell) checkLegsOfTurn() {
	c.t.Helper()
	first := "plain"
	if c.ticket {
		first = "ticket"
	}
	if got, _, _ := c.saw(c.prefill); got != strings.ReplaceAll(c.want["prefill"], "first", first) {
		c.t.Errorf("got prefill legs %q, want %q, where the first is a %s", got, c.want["prefill"], first)
	}
	got, _, rescued := c.saw(c.decode)
	if got != c.want["decode"] {
		c.t.Errorf("got decode legs %q, want %q", got, c.want["decode"])
	}
	if c.wants("rescued") {
		c.until(func() bool { _, _, rescued := c.saw(c.decode); return rescued })
	} else if rescued {
		c.t.Error("a hand-over is rescued that decode has taken")
	}
}

// saw tells of the legs that engines saw since the fault: the kinds of those of the turn, of prefill "ticket" and "plain", of decode "handed" and "alone",
// with "@1" behind one at the second engine; the last of them; and whether there were rescues besides.
func (c *cell) saw(engines []*engine) (kinds string, last leg, rescued bool) {
	var all []string
	for i, e := range engines {
		for _, l := range e.seen()[c.before[e]:] {
			kind := c.kind(e, l)
			if l.rescues() {
				rescued = true
				continue
			}
			if i > 0 {
				kind += fmt.Sprintf("@%d", i)
			}
			all, last = append(all, kind), l
		}
	}
	return strings.Join(all, " "), last, rescued
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
func (c *cell) checkLeft() {
	c.t.Helper()
	if stored := c.want["stored"]; stored != "" {
		c.wantStored(2, stored)
	}
	if got := c.store.Len() > c.others; got != c.wants("kept") {
		c.t.Errorf("the store has a ticket of the conversation: %v", got)
	}
	pinned, open := c.due()
	if c.wants("rescued") { // the answer of a rescue names blocks of decode
		c.until(func() bool {
			pinned, open = c.due()
			return pinned > open || c.log.count("wait for their lease") > 0
		})
	} else if got := pinned > open; got != c.wants("unused") {
		c.t.Errorf("blocks wait for their release: %v", got)
	}
	if open > 0 && !c.ticket {
		c.t.Error("it is open whether decode has freed blocks that no leg has named")
	}
	// A turn's line comes behind its answer. These end with the log, if they wait in vain.
	if c.wants("gone") && !c.wants("unheard") {
		c.until(func() bool { return c.log.count(`"msg":"turn"`, `"status":`+c.want["status"]) > 0 })
	}
}

// due is how many blocks wait for their release, and of how many it is open whether they are free.
func (c *cell) due() (pinned, open int) {
	for _, decode := range c.deps.Fleet.Holders.All() {
		_, tokens, unsure := c.server.Due(decode)
		pinned, open = pinned+tokens, open+unsure
	}
	return pinned, open
}

// checkAfter checks what the fault has left of the proxy: the next turn of the conversation, and whether another one may use tickets.
func (c *cell) checkAfter() {
	c.t.Helper()
	c.busy.Store(0)
	c.wantOK(c.turn("another", 1, c.stream), "miss;reason=first_turn")
	if n := c.busy.Load(); n != 0 {
		c.t.Errorf("%d attempts are counted in flight on an engine that has none", n)
	}
	c.wantOK(c.turn("another", 2, c.stream), cmp.Or(c.want["pair"], "hit;"))
	next := cmp.Or(c.want["next"], "miss;reason=nothing_stored")
	if c.wants("kept") {
		next = cmp.Or(c.want["next"], "hit;")
	}
	c.wantOK(c.turn(conversation, c.turns+1, c.stream), next)
}
