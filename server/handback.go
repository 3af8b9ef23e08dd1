package server

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// handBacks hands KV back from decode to prefill: prefill reads a ticket's blocks into its own prefix cache, and decode then frees them. It
// does so in the background for tickets that no turn has used for a while, and for answers whose request names no conversation. The
// conditions are those of a ticket, because the leg writes into a cache that other requests read.
//
// A ticket stays in the store, where turns find it, until its leg is about to be sent. It is then taken by its id, as by a turn. Only this
// replica can hand it back, because only this process has the ids of its tokens.
type handBacks struct {
	cfg        *Config
	deps       *Deps
	releaser   *releaser
	writer     *ticketWriter
	ledger     *ledger
	background *background
	counts     *counts
	lineages   *lineages
	arena      *proof.Arena  // keeps the ids, nil if nothing is handed back
	wake       chan struct{} // holds at most one value, which says that a queue may have something to do

	mu       sync.Mutex // guards the rest
	retained map[convcache.TicketID]*retainedTicket
	queues   map[pairKey]*pairQueue
	under    map[convcache.Key]*underWay   // hand-backs that run now, by conversation
	warned   map[string]*fleet.Incarnation // instance -> the incarnation of prefill for which the log has warned that it keeps nothing
}

// retainedTicket is a ticket that waits for its hand-back, with its ids. It may be in the store or not.
type retainedTicket struct {
	id     convcache.TicketID
	key    convcache.Key     // its conversation's key, if it has a conversation
	homed  bool              // it has a conversation
	ticket *convcache.Ticket // nil while it is in the store
	ids    *proof.Retained
	queue  *pairQueue
	at     *list.Element // its element in the queue
	due    time.Time     // until then it is left for turns to use
	ends   time.Time     // its deadline

	model, salt  string
	affinity     string // its conversation's routing key
	conversation string // its conversation's name in the log
	concluded    bool   // the pair's state has been told the outcome
	over         func() // tells the fleet that the leg has ended

	settled bool // it was read, given up or put back since it was taken
	again   bool // it goes back to its queue
	unsent  int  // how many of its legs failed before anything was sent
}

// pairKey names the pair of a queue.
type pairKey struct{ prefill, decode *fleet.Incarnation }

// pairQueue is the tickets to be handed back from one incarnation of decode to one incarnation of prefill, one leg at a time.
type pairQueue struct {
	pairKey
	out    list.List // tickets that are not in the store, so that no turn can use them
	stored list.List // tickets in the store, in the order in which they are due
	busy   bool      // a leg is under way
	rests  time.Time // no leg begins before this time
	away   time.Time // since when prefill can't be sent legs, zero while it can
}

// Limits of what waits for a hand-back.
const (
	// maxOut is how many tickets of a queue may wait outside of the store. Further ones are released, because a queue that is so far behind
	// would pin decode's blocks for longer than the reuse is worth.
	maxOut = 256
	// handBackEvery is how often the queues are examined, besides whenever a ticket becomes due or a leg has ended. Whether an instance
	// takes hand-backs changes only when the engines are read, every few seconds.
	handBackEvery = 250 * time.Millisecond
	// restsFor is how long a queue waits after it could not send a leg. Engines are read every few seconds.
	restsFor = time.Second
	// awayFor is how long tickets wait for an incarnation of prefill that does not answer, before they go to another instance. A restart of
	// vLLM takes longer, and loses the prompts in its cache.
	awayFor = 10 * time.Second
	// maxUnsent is how many legs of a ticket without a conversation may fail unsent before it is released. Nothing else would end it.
	maxUnsent = 3
	// patienceForLeg is how long a turn waits for the hand-back of its conversation. Legs took 0.04 to 0.3 s (measured on vLLM 0.32).
	patienceForLeg = 2 * time.Second
)

func newHandBacks(cfg *Config, deps *Deps) *handBacks {
	h := &handBacks{
		cfg: cfg, deps: deps, wake: make(chan struct{}, 1),
		retained: map[convcache.TicketID]*retainedTicket{}, queues: map[pairKey]*pairQueue{}, under: map[convcache.Key]*underWay{},
		warned: map[string]*fleet.Incarnation{},
	}
	if cfg.handsBack() && deps.Connector.Traits().HandsBack {
		h.arena = proof.NewArena(cfg.HandBackMemory)
	}
	return h
}

// handsBack reports whether hand-backs are configured.
func (c *HandBackConfig) handsBack() bool {
	return c.HandBack == HandBackIdle || c.HandBack == HandBackNow
}

// on reports whether tickets are handed back: hand-backs are configured, and the connector supports them.
func (h *handBacks) on() bool { return h.arena != nil }

// stored notes a ticket that is now in the store, and keeps its ids if they fit into memory. The ticket is due when no turn has used it for
// HandBackAfter.
func (h *handBacks) stored(t *turn, d *decoding, ticket *convcache.Ticket) {
	k := h.claim(t, d, ticket)
	if k == nil {
		return
	}
	k.key, k.homed, k.affinity, k.due = t.conversation.key, true, t.conversation.affinity, time.Now()
	if h.cfg.HandBack == HandBackIdle {
		k.due = k.due.Add(h.cfg.HandBackAfter)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(k)
	h.remind()
}

// remind wakes the queues at the moment when a ticket that is stored now becomes due. With the ticker alone the legs of all pairs would begin
// together, four times a second, and turns that come at these moments would wait for them.
func (h *handBacks) remind() {
	if h.cfg.HandBack == HandBackNow {
		h.hurry()
		return
	}
	time.AfterFunc(h.cfg.HandBackAfter, h.hurry)
}

// outside hands back a ticket that is not stored. It reports false if it does not take the ticket, which the caller must then release.
func (h *handBacks) outside(t *turn, a *answer, ticket *convcache.Ticket) bool {
	if size := max(1, ticket.Chain.BlockSize); ticket.Tokens/size <= a.usage.prompt/size {
		return false // prefill has all whole blocks of the ticket already, and vLLM caches only whole blocks
	}
	k := h.claim(t, a.decoding, ticket)
	return k != nil && h.take(k, ticket)
}

// displaced hands back a ticket that was removed from the store. It reports false if it does not take the ticket, which the caller must then
// release: another replica has made it, or its ids did not fit into memory.
func (h *handBacks) displaced(ticket *convcache.Ticket) bool {
	h.mu.Lock()
	k := h.retained[ticket.ID]
	if k != nil {
		h.drop(k)
	}
	h.mu.Unlock()
	return k != nil && h.take(k, ticket)
}

// claim takes over the ids of an answer, and returns nil if it does not keep them.
func (h *handBacks) claim(t *turn, d *decoding, ticket *convcache.Ticket) *retainedTicket {
	if most := d.from.Engine().ContextLength(t.model); most > 0 && ticket.Tokens >= most-1 {
		// The context is full, so that no turn can follow. And the leg's first token would be its last, so that prefill would keep the
		// blocks until their lease ends.
		return nil
	}
	if ticket.Groups != 1 || !h.on() || !h.keeps(d.from, ticket.Tokens) { // several groups no connector hands back; turns may use it
		return nil
	}
	ids := t.ids.Retained(ticket.Tokens)
	if ids == nil {
		return nil
	}
	return &retainedTicket{
		id: ticket.ID, ids: ids, ends: ticket.Deadline, queue: h.queue(pairKey{d.from, d.incarnation}),
		model: t.model, salt: cmp.Or(t.salt, t.clientSalt), conversation: t.record.Asked().Conversation,
	}
}

// take queues a ticket that is not in the store. It reports false, and frees the ids, if too many wait.
func (h *handBacks) take(k *retainedTicket, ticket *convcache.Ticket) bool {
	removed := *ticket
	k.ticket, k.due = &removed, time.Time{}
	h.mu.Lock()
	defer h.mu.Unlock()
	if k.queue.out.Len() >= maxOut || !h.on() {
		k.ids.Free()
		return false
	}
	k.queue.decode.BeginTransfer(inBlocks(k.queue.decode, ticket.Tokens))
	h.add(k)
	h.hurry()
	return true
}

// left notes that a ticket is no longer in the store, whoever took it, and frees its ids.
func (h *handBacks) left(id convcache.TicketID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.retained[id]; k != nil {
		h.drop(k)
		k.ids.Free()
	}
}

// pairQueue returns the queue of a pair.
func (h *handBacks) queue(key pairKey) *pairQueue {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queueOf(key)
}

// queueOf needs h.mu.
func (h *handBacks) queueOf(key pairKey) *pairQueue {
	l := h.queues[key]
	if l == nil {
		l = &pairQueue{pairKey: key}
		h.queues[key] = l
	}
	return l
}

// add puts a ticket into its queue. The caller holds h.mu.
func (h *handBacks) add(k *retainedTicket) {
	k.queue = h.queueOf(k.queue.pairKey) // that of before may have been forgotten
	if k.ticket != nil {
		k.at = k.queue.out.PushBack(k)
	} else {
		h.retained[k.id], k.at = k, k.queue.stored.PushBack(k)
	}
}

// addAgain puts a ticket back to the front of its queue, and lets the queue rest. The caller holds h.mu.
func (h *handBacks) addAgain(k *retainedTicket) {
	k.again, k.settled, k.concluded = false, false, false
	k.queue = h.queueOf(k.queue.pairKey)
	k.queue.rests = time.Now().Add(restsFor)
	if k.ticket != nil {
		k.at = k.queue.out.PushFront(k)
	} else {
		h.retained[k.id], k.at = k, k.queue.stored.PushFront(k)
	}
}

// drop takes a ticket out of its queue. The caller holds h.mu.
func (h *handBacks) drop(k *retainedTicket) {
	delete(h.retained, k.id)
	if k.ticket != nil {
		k.queue.out.Remove(k.at)
	} else {
		k.queue.stored.Remove(k.at)
	}
}

// hurry wakes the queues now.
func (h *handBacks) hurry() {
	select {
	case h.wake <- struct{}{}:
	default: // they will be woken already
	}
}

// round starts the hand-backs that can start now.
func (h *handBacks) round(ctx context.Context) {
	for _, k := range h.begin(time.Now()) {
		h.background.run("hand-back", k.queue.decode.Engine().Name, func() {
			defer h.done(k)
			h.run(ctx, k)
		})
	}
}

// done ends a hand-back, or puts its ticket back into the queue.
func (h *handBacks) done(k *retainedTicket) {
	if !k.again {
		k.ids.Free()
	}
	k.over()
	h.mu.Lock()
	defer h.mu.Unlock()
	k.queue.busy = false
	if k.homed {
		under := h.under[k.key]
		if under.legs--; under.legs == 0 {
			delete(h.under, k.key)
			close(under.ended)
		}
	}
	if k.again {
		h.addAgain(k)
	}
	h.hurry()
}

// HandBackWaiting returns how many tickets wait to be handed back: stored tickets that are due, and tickets that are not in the store.
func (s *Server) HandBackWaiting() (tickets int) {
	h, now := s.turns.handBacks, time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.queues {
		tickets += l.out.Len()
		for at := l.stored.Front(); at != nil && upstream.Elapsed(at.Value.(*retainedTicket).due, now) >= 0; at = at.Next() {
			tickets++
		}
	}
	return tickets
}

// HandBackMemory returns how many bytes the ids of tickets use, and how many they may use. Both are 0 if nothing is handed back.
func (s *Server) HandBackMemory() (used, most int64) { return s.turns.handBacks.arena.Use() }
