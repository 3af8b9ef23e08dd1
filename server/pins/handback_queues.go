package pins

import (
	"container/heap"
	"container/list"
	"sync"
	"time"

	"carryover/account"
	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// handBackQueues are the tickets that wait for their hand-back, by pair, and the hand-backs that run now.
type handBackQueues struct {
	cfg      *Config
	fleet    *fleet.Fleet
	releases *Releases
	wake     chan struct{} // holds at most one value, which says that a queue may have something to do

	mu       sync.Mutex // guards the rest
	retained map[convcache.TicketID]*retainedTicket
	accounts account.Pool[*retainedTicket] // the same by account, weighed by ids
	queues   map[pairKey]*pairQueue
	under    map[convcache.Key]*underWay   // hand-backs that run now, by conversation
	warned   map[string]*fleet.Incarnation // instance -> the incarnation of prefill for which the log has warned that it keeps nothing
}

func newHandBackQueues(cfg *Config, deps *Deps, releases *Releases) *handBackQueues {
	return &handBackQueues{
		cfg: cfg, fleet: deps.Fleet, releases: releases, wake: make(chan struct{}, 1),
		retained: map[convcache.TicketID]*retainedTicket{}, queues: map[pairKey]*pairQueue{}, under: map[convcache.Key]*underWay{},
		warned: map[string]*fleet.Incarnation{},
	}
}

// retainedTicket is a ticket that waits for its hand-back, with its ids. It may be in the store or not.
type retainedTicket struct {
	id     convcache.TicketID
	key    convcache.Key     // its conversation's key, if it has a conversation
	homed  bool              // it has a conversation
	ticket *convcache.Ticket // nil while it is in the store
	was    pin               // what the ledger knew of it, while it is not
	ids    tokenIDs
	queue  *pairQueue
	queuePlace
	due    time.Time // until then it is left for turns to use
	ends   time.Time // its deadline
	from   handBackOrigin
	leg    legState
	unsent int // how many of its legs failed before anything was sent
}

func (k *retainedTicket) when() time.Time { return k.due }
func (k *retainedTicket) moved(to int)    { k.place = to }

// queuePlace is where a ticket is in its queue.
type queuePlace struct {
	at    *list.Element                   // while it is not in the store
	place int                             // while it is
	share *account.Place[*retainedTicket] // while it is
}

// tokenIDs are the ids of a ticket's tokens, in memory that Free gives back.
type tokenIDs interface {
	Len() int
	AppendList(dst []byte) []byte
	Are(list []byte) bool
	Free()
}

// handBackOrigin is what a leg needs to know of the turn that has left the ticket.
type handBackOrigin struct {
	account      string
	model, salt  string
	affinity     string // its conversation's routing key
	conversation string // its conversation's name in the log
}

// legState is what has become of a ticket since its leg began.
type legState struct {
	concluded bool   // the pair's state has been told the outcome
	over      func() // tells the fleet that the leg has ended
	settled   bool   // the ticket was read, given up or put back since it was taken
	again     bool   // it goes back to its queue
}

// pairKey names the pair of a queue.
type pairKey struct{ prefill, decode *fleet.Incarnation }

// pairQueue is the tickets to be handed back from one incarnation of decode to one incarnation of prefill, one leg at a time.
type pairQueue struct {
	pairKey
	out    list.List                // tickets that are not in the store, so that no turn can use them
	stored soonest[*retainedTicket] // tickets in the store, by the time at which they are due
	busy   bool                     // a leg is under way
	rests  time.Time                // no leg begins before this time
	away   time.Time                // since when prefill can't be sent legs, zero while it can
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
	// patienceForLeg is how long a turn waits for hand-backs of its conversation, in all its attempts and under all its keys. Legs took 0.04 to
	// 0.3 s (measured on vLLM 0.32).
	patienceForLeg = 2 * time.Second
)

// remind wakes the queues at the moment when a ticket that is stored now becomes due. With the ticker alone the legs of all pairs would begin
// together, four times a second, and turns that come at these moments would wait for them.
func (h *handBackQueues) remind(choice continuation.Choice) {
	switch {
	case choice.End != continuation.HandBack:
	case choice.Wait == 0:
		h.hurry()
	default:
		time.AfterFunc(choice.Wait, h.hurry)
	}
}

// displaced takes a ticket, which was removed from the store, out of its queue, and returns nil if it is in none.
func (h *handBackQueues) displaced(id convcache.TicketID) *retainedTicket {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.retained[id]
	if k != nil {
		h.drop(k)
	}
	return k
}

// resume puts a ticket into its queue again, of which it was taken out and which is in the store again.
func (h *handBackQueues) resume(k *retainedTicket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(k)
	h.hurry()
}

// left notes that a ticket is no longer in the store, whoever took it, and frees its ids.
func (h *handBackQueues) left(id convcache.TicketID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.retained[id]; k != nil {
		h.drop(k)
		k.ids.Free()
	}
}

// pairQueue returns the queue of a pair.
func (h *handBackQueues) queue(key pairKey) *pairQueue {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queueOf(key)
}

// queueOf needs h.mu.
func (h *handBackQueues) queueOf(key pairKey) *pairQueue {
	l := h.queues[key]
	if l == nil {
		l = &pairQueue{pairKey: key}
		h.queues[key] = l
	}
	return l
}

// add puts a ticket into its queue. The caller holds h.mu.
func (h *handBackQueues) add(k *retainedTicket) {
	k.queue = h.queueOf(k.queue.pairKey) // that of before may have been forgotten
	if k.ticket != nil {
		k.at = k.queue.out.PushBack(k)
	} else {
		h.retain(k)
	}
}

// retain queues a ticket that is in the store. The caller holds h.mu.
func (h *handBackQueues) retain(k *retainedTicket) {
	h.retained[k.id] = k
	k.share = h.accounts.Add(k.from.account, int64(k.ids.Len()), k)
	heap.Push(&k.queue.stored, k)
}

// addAgain puts a ticket back to the front of its queue, and lets the queue rest. The caller holds h.mu.
func (h *handBackQueues) addAgain(k *retainedTicket) {
	k.leg = legState{}
	k.queue = h.queueOf(k.queue.pairKey)
	k.queue.rests = time.Now().Add(restsFor)
	if k.ticket != nil {
		k.at = k.queue.out.PushFront(k)
	} else {
		h.retain(k) // it was the first that was due, and still is
	}
}

// drop takes a ticket out of its queue. The caller holds h.mu.
func (h *handBackQueues) drop(k *retainedTicket) {
	delete(h.retained, k.id)
	if k.ticket != nil {
		k.queue.out.Remove(k.at)
	} else {
		heap.Remove(&k.queue.stored, k.place)
		h.accounts.Remove(k.share)
	}
}

// makeRoom keeps an eighth of the memory free for the ids of answers under way. The account whose tickets have most ids loses those of its
// newest, whose hand-back is farthest away: such a ticket ends like one that is not handed back. The caller holds h.mu.
func (h *handBackQueues) makeRoom(use func() (used, most int64)) {
	for used, most := use(); used > most-most/8 && h.accounts.Len() > 0; used, _ = use() {
		k := h.accounts.Most().Newest().Value
		h.drop(k)
		k.ids.Free()
	}
}

// hurry wakes the queues now.
func (h *handBackQueues) hurry() {
	select {
	case h.wake <- struct{}{}:
	default: // they will be woken already
	}
}

// done ends a hand-back, or puts its ticket back into the queue.
func (h *handBackQueues) done(k *retainedTicket) {
	if !k.leg.again {
		k.ids.Free()
	}
	k.leg.over()
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
	if k.leg.again {
		h.addAgain(k)
	}
	h.hurry()
}

// waiting returns how many tickets wait: stored tickets that are due, and tickets that are not in the store.
func (h *handBackQueues) waiting(now time.Time) (tickets int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.queues {
		tickets += l.out.Len()
		for _, k := range l.stored {
			if upstream.Elapsed(k.due, now) >= 0 {
				tickets++
			}
		}
	}
	return tickets
}
