package vllmsim

import "time"

// expiryMargin: prefill declines a read when less of the owner's deadline is left (nixl/pull_worker.py, #47021).
const expiryMargin = 5 * time.Second

// spentKept is how many finished pins an engine remembers, to tell a second read from a read of blocks that it never pinned.
const spentKept = 65536

// pin holds the blocks of a finished request until they are read or released or their deadline has passed.
type pin struct {
	blocks   []int32
	tokens   int
	salt     string // the cache_salt of its request
	deadline time.Duration
	lease    bool // prefill's lease, which heartbeats prolong; false for decode's fixed TTL
	reads    int  // reads that have begun
}

// outcome is how a pin ended.
type outcome int

const (
	outcomeUnknown outcome = iota
	outcomeRead
	outcomeReleased
	outcomeExpired
)

// pins is the table of blocks that an engine holds for others. The engine's mutex guards it.
type pins struct {
	held  map[string]*pin // by remote_request_id
	spent map[string]outcome
	order []string // keys of spent, oldest first

	earliest time.Duration // no pin ends before this time, so most calls of expire need not look at the pins
}

func newPins() pins {
	return pins{held: make(map[string]*pin), spent: make(map[string]outcome)}
}

// finish forgets a pin and remembers its outcome. The caller frees the blocks.
func (p *pins) finish(requestID string, o outcome) {
	delete(p.held, requestID)
	if len(p.order) == spentKept {
		delete(p.spent, p.order[0])
		p.order = p.order[1:]
	}
	p.order = append(p.order, requestID)
	p.spent[requestID] = o
}

func (p *pins) totals() (tokens, blocks int) {
	for _, pin := range p.held {
		tokens += pin.tokens
		blocks += len(pin.blocks)
	}
	return tokens, blocks
}

// pin keeps the blocks of a finished request for another instance. The caller holds e.mu.
func (e *engine) pin(requestID string, p *pin) {
	if len(e.pins.held) == 0 || p.deadline < e.pins.earliest {
		e.pins.earliest = p.deadline
	}
	e.pins.held[requestID] = p
}

// expire frees blocks whose deadline has passed. Every operation of the engine begins with it, so the passing of time needs no
// goroutine. The caller holds e.mu.
func (e *engine) expire() {
	now := e.clock.now()
	if len(e.pins.held) == 0 || now < e.pins.earliest {
		return
	}
	e.pins.earliest = now + e.cfg.KVTTL + e.cfg.Lease
	for id, p := range e.pins.held {
		if p.deadline > now {
			e.pins.earliest = min(e.pins.earliest, p.deadline)
			continue
		}
		e.free(p.blocks)
		e.pins.finish(id, outcomeExpired)
		if p.lease {
			e.stats.LeasesExpired++
		} else {
			e.stats.TTLExpired++
		}
	}
}

// heartbeat prolongs a lease to two thirds of its duration from now (docs/design/nixl_kv_cache_lease.md, #41383).
func (e *engine) heartbeat(requestID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire()
	if p, ok := e.pins.held[requestID]; ok && p.lease {
		p.deadline = max(p.deadline, e.clock.now()+e.cfg.Lease*2/3)
		e.stats.Heartbeats++
	}
}

// beginRead counts a reader that is about to copy the blocks of requestID. It never refuses: a one-sided read reaches the
// memory whether or not the owner still holds it for a reader.
func (e *engine) beginRead(requestID string) {
	e.expire()
	if p, ok := e.pins.held[requestID]; ok {
		if p.reads++; p.reads > 1 {
			e.stats.DoubleReads++
		}
		return
	}
	switch e.pins.spent[requestID] {
	case outcomeRead, outcomeReleased:
		e.stats.DoubleReads++
	case outcomeExpired:
		e.stats.ExpiredReads++
	case outcomeUnknown:
		e.stats.UnknownReads++
	}
}

// notified handles the reader's "done": it frees the pin, whether blocks were read or not.
func (e *engine) notified(side sideRequest) (v verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire()
	v = e.judge(side)
	requestID := side.RequestID
	p, ok := e.pins.held[requestID]
	if !ok {
		e.stats.LateNotifications++
		return v
	}
	e.free(p.blocks)
	if p.reads > 0 {
		e.stats.Reads++
		e.pins.finish(requestID, outcomeRead)
		return v
	}
	e.stats.Releases++
	e.pins.finish(requestID, outcomeReleased)
	return v
}

// unpin frees a pin that no reader will be told about.
func (e *engine) unpin(requestID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, ok := e.pins.held[requestID]; ok {
		e.free(p.blocks)
		e.pins.finish(requestID, outcomeReleased)
	}
}

// Pinned is a finished request whose blocks wait for a reader.
type Pinned struct {
	EngineID  string
	RequestID string
	Blocks    int
	Leased    bool // true for prefill's pins, false for decode's
}

// Pinned lists what the instance pins now.
func (i *Instance) Pinned() (all []Pinned) {
	for _, e := range i.engines() {
		e.mu.Lock()
		e.expire()
		for id, p := range e.pins.held {
			all = append(all, Pinned{EngineID: e.id, RequestID: id, Blocks: len(p.blocks), Leased: p.lease})
		}
		e.mu.Unlock()
	}
	return all
}

// EngineIDs returns the current engine ids, one for each rank.
func (i *Instance) EngineIDs() (ids []string) {
	for _, e := range i.engines() {
		ids = append(ids, e.id)
	}
	return ids
}
