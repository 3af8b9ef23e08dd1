package engine

import "time"

// ExpiryMargin is the least time for a read: prefill declines a read if less remains of the owner's deadline (nixl/pull_worker.py, #47021).
const ExpiryMargin = 5 * time.Second

// spentKept is how many finished pins an engine remembers, to tell a second read from a read of blocks that it never pinned.
const spentKept = 65536

// Pin holds the blocks of a finished request until a read, a release or the deadline.
type Pin struct {
	Blocks   []int32
	Tokens   int
	Salt     string // the cache_salt of its request
	Deadline time.Duration
	Lease    bool // prefill's lease, which heartbeats prolong; false for decode's fixed TTL
	reads    int  // reads that have begun
}

type outcome int

// How a pin ended.
const (
	outcomeUnknown outcome = iota
	OutcomeRead
	outcomeReleased
	outcomeExpired
)

// pins is the table of blocks that an engine holds for others. The engine's mutex guards it.
type pins struct {
	Held  map[string]*Pin // by remote_request_id
	spent map[string]outcome
	order []string // keys of spent, oldest first

	earliest time.Duration // no pin ends earlier, so most calls of Expire need not look at the pins
}

// Finish forgets a pin and remembers its outcome. The caller frees the blocks.
func (p *pins) Finish(requestID string, o outcome) {
	delete(p.Held, requestID)
	if len(p.order) == spentKept {
		delete(p.spent, p.order[0])
		p.order = p.order[1:]
	}
	p.order = append(p.order, requestID)
	p.spent[requestID] = o
}

func (p *pins) totals() (tokens, blocks int) {
	for _, pin := range p.Held {
		tokens += pin.Tokens
		blocks += len(pin.Blocks)
	}
	return tokens, blocks
}

// Pin keeps the blocks of a finished request for another instance. The caller holds e.Mu.
func (e *Engine) Pin(requestID string, p *Pin) {
	if len(e.Pins.Held) == 0 || p.Deadline < e.Pins.earliest {
		e.Pins.earliest = p.Deadline
	}
	e.Pins.Held[requestID] = p
}

// Expire frees blocks whose deadline has passed. Every operation of the engine begins with it, so no goroutine is needed. The caller holds
// e.Mu.
func (e *Engine) Expire() {
	now := e.Clock.Now()
	if len(e.Pins.Held) == 0 || now < e.Pins.earliest {
		return
	}
	e.Pins.earliest = now + e.Cfg.KVTTL + e.Cfg.Lease
	for id, p := range e.Pins.Held {
		if p.Deadline > now {
			e.Pins.earliest = min(e.Pins.earliest, p.Deadline)
			continue
		}
		e.Free(p.Blocks)
		e.Pins.Finish(id, outcomeExpired)
		if p.Lease {
			e.Stats.LeasesExpired++
		} else {
			e.Stats.TTLExpired++
		}
	}
}

// Heartbeat prolongs a lease to at least two thirds of its duration from now (docs/design/nixl_kv_cache_lease.md, #41383).
func (e *Engine) Heartbeat(requestID string) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.Expire()
	if p, ok := e.Pins.Held[requestID]; ok && p.Lease {
		p.Deadline = max(p.Deadline, e.Clock.Now()+e.Cfg.Lease*2/3)
		e.Stats.Heartbeats++
	}
}

// beginRead counts a reader that is about to copy the blocks of a request. It never refuses: a one-sided read reaches the memory even if the
// owner no longer holds it for a reader.
func (e *Engine) beginRead(side SideRequest) {
	e.Expire()
	p, held := e.Pins.Held[side.RequestID]
	if held {
		p.reads++
	}
	ended := e.Pins.spent[side.RequestID]
	switch {
	case held && p.reads == 1:
	case side.Alone && (held || ended != outcomeUnknown):
		e.Stats.IdleReads++
	case held, ended == OutcomeRead, ended == outcomeReleased:
		e.Stats.DoubleReads++
	case ended == outcomeExpired:
		e.Stats.ExpiredReads++
	default:
		e.Stats.UnknownReads++
	}
}

// Notified handles the reader's "done" by freeing the pin, with or without a read.
func (e *Engine) Notified(side SideRequest) (v Verdict) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.Expire()
	v = e.judge(side)
	requestID := side.RequestID
	p, ok := e.Pins.Held[requestID]
	if !ok {
		if !side.Alone {
			e.Stats.LateNotifications++
		}
		return v
	}
	e.Free(p.Blocks)
	if p.reads > 0 {
		e.Stats.Reads++
		e.Pins.Finish(requestID, OutcomeRead)
		return v
	}
	e.Stats.Releases++
	e.Pins.Finish(requestID, outcomeReleased)
	return v
}

// Unpin frees a pin whose ticket no reader will get.
func (e *Engine) Unpin(requestID string) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	if p, ok := e.Pins.Held[requestID]; ok {
		e.Free(p.Blocks)
		e.Pins.Finish(requestID, outcomeReleased)
	}
}

// Pinned is a finished request whose blocks wait for a reader.
type Pinned struct {
	EngineID  string
	RequestID string
	Blocks    int
	Leased    bool // true for prefill's pins, false for decode's
}

// Pinned lists the current pins.
func (e *Engine) Pinned() (all []Pinned) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.Expire()
	for id, p := range e.Pins.Held {
		all = append(all, Pinned{EngineID: e.ID, RequestID: id, Blocks: len(p.Blocks), Leased: p.Lease})
	}
	return all
}
