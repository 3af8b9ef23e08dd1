package convcache

import (
	"bytes"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"carryover/account"
)

// maxBranches is how many tickets a conversation keeps. Clients branch by regenerated answers and by sub-agents under one id, and each
// branch pins blocks of decode.
const maxBranches = 4

const (
	defaultMaxEntries = 100_000
	defaultMaxBytes   = 256 << 20
)

// MemoryConfig bounds a Memory.
type MemoryConfig struct {
	// MaxEntries is the most tickets and notes of all conversations. 0 or less means 100,000.
	MaxEntries int
	// MaxBytes is the most memory for tickets. A ticket counts the length of its params, 8 per block of its chain, 64 per entry of Prefilled,
	// the length of its six names, 448 for a Reading, and 640 for the rest. 0 or less means 256 MiB.
	MaxBytes int64
	// Now is the clock. nil means time.Now, with a monotonic and a wall reading; the first to reach the deadline ends a ticket.
	Now func() time.Time
}

// Memory keeps tickets in this process. It is safe for concurrent use. Beyond its bounds it forgets expired tickets, then whole
// conversations: the least recently used ones of the account with the most memory.
type Memory struct {
	now        func() time.Time
	maxEntries int
	maxBytes   int64

	mu            sync.Mutex // guards everything below
	conversations map[Key]*conversation
	accounts      account.Pool[*conversation] // by account, weighed by memory
	aliases       int                         // conversations with only aliases
	expiry        account.Heap[*stored]       // all tickets by deadline
	bytes         int64
}

// conversation is the content of one key: at least one ticket, newest first.
type conversation struct {
	key      Key
	branches []*stored
	aliases  int // aliases among the branches
	bytes    int64
	place    *account.Place[*conversation] // in the account of its first ticket
}

func (c *conversation) only() int {
	if len(c.branches) > 0 && c.aliases == len(c.branches) {
		return 1
	}
	return 0
}

type stored struct {
	home   *conversation
	ticket Ticket
	heapAt int // index in Memory.expiry
}

// ticketOverhead is the memory of a conversation's only ticket without params, chain, outline and names. 560 bytes were measured among
// 100,000 tickets (BenchmarkMemory_Footprint); the rest is for size classes.
const ticketOverhead = 640

// readingOverhead is the memory of a Reading (package nixl): structs of 128 and 208 bytes, the name of a request and a host.
const readingOverhead = 448

func (s *stored) weight() int64 {
	t := &s.ticket
	names := len(t.Account) + len(t.Decode.Instance) + len(t.Decode.Incarnation) + len(t.EngineID) + len(t.Prefill.Instance) + len(t.Prefill.Incarnation)
	weight := int64(len(t.Params)+8*len(t.Chain.Blocks)+4*len(t.Outline)+64*len(t.Prefilled)+names) + ticketOverhead
	if t.Reading != nil {
		weight += readingOverhead
	}
	return weight
}

// usable is false at the deadline itself.
func (s *stored) usable(now time.Time) bool { return left(s.ticket.Deadline, now) > 0 }

// NewMemory returns an empty store. Run removes expired tickets.
func NewMemory(cfg MemoryConfig) *Memory {
	if cfg.MaxEntries <= 0 {
		cfg.MaxEntries = defaultMaxEntries
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Memory{now: cfg.Now, maxEntries: cfg.MaxEntries, maxBytes: cfg.MaxBytes, conversations: map[Key]*conversation{}}
}

// Peek returns the usable branches of the first [MaxKeys] keys, in the order of the keys and the newest first, as they were at one moment.
// The outcome is Found; Expired if all branches have expired; Empty if there are none; Unavailable if ctx has ended.
func (m *Memory) Peek(ctx context.Context, keys []Key) ([]KeyedBranch, Outcome) {
	if ctx.Err() != nil {
		return nil, Unavailable
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, otherwise := m.now(), Empty
	var branches []KeyedBranch
	for _, key := range Bounded(keys) {
		c := m.conversations[key]
		if c == nil {
			continue
		}
		m.accounts.Use(c.place)
		otherwise = Expired
		branches = slices.Grow(branches, len(c.branches))
		for _, s := range c.branches {
			if s.usable(now) {
				branches = append(branches, KeyedBranch{key, s.ticket.Branch})
			}
		}
	}
	return branches, found(branches, otherwise)
}

// Take removes exactly this ticket and returns Taken. Otherwise it returns Consumed if the ticket is not there, Expired if its deadline has
// passed (it is removed), or Unavailable if ctx has ended, and nothing changes.
//
// Look-up and removal are one critical section. As two, turns A and B could both find the ticket before A removes it, and send it twice.
func (m *Memory) Take(ctx context.Context, key Key, id TicketID) (Ticket, Outcome) {
	if ctx.Err() != nil {
		return Ticket{}, Unavailable
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.conversations[key]
	if c == nil {
		return Ticket{}, Consumed
	}
	m.accounts.Use(c.place)
	at := slices.IndexFunc(c.branches, func(s *stored) bool { return s.ticket.ID == id })
	if at < 0 {
		return Ticket{}, Consumed
	}
	s := c.branches[at]
	m.remove(s)
	if !s.usable(m.now()) {
		return Ticket{}, Expired
	}
	return s.ticket, Taken
}

// Put stores the ticket as the newest branch for ttl, or until its own deadline if that is sooner, and returns Stored. It copies Params and
// shares Chain.Blocks and Outline. A ticket with the same id is replaced.
//
// The displaced tickets belong to the caller, as if taken: contained branches, the oldest of five, and conversations beyond the bounds.
// Expired ones are dropped, because decode is about to free their blocks.
//
// A note displaces tickets only beyond the bounds. It is Superseded if a branch outdates it, or if there are four tickets.
//
// Nothing is stored or removed after Expired (no time left), Refused (larger than MaxBytes), Superseded and NotStored (ctx has ended).
func (m *Memory) Put(ctx context.Context, key Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	if ctx.Err() != nil {
		return nil, NotStored
	}
	s := &stored{ticket: t}
	s.ticket.Params = bytes.Clone(t.Params)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	s.ticket.Deadline = deadlineOf(&t, now, ttl)
	if !s.usable(now) {
		return nil, Expired
	}
	if s.weight() > m.maxBytes {
		return nil, Refused
	}
	displaced, ok := m.makeRoom(key, &s.ticket, now)
	if !ok {
		return nil, Superseded
	}
	displaced = append(displaced, m.shrink(key, s.weight(), now)...)
	m.add(key, s)
	return displaced, Stored
}

// makeRoom removes the branches that t replaces, and returns the usable ones. It returns false if t is a note that must not be stored.
func (m *Memory) makeRoom(key Key, t *Ticket, now time.Time) (displaced []Ticket, ok bool) {
	c := m.conversations[key]
	if c == nil {
		return nil, true
	}
	leaving, staying := make([]*stored, 0, maxBranches), make([]*stored, 0, maxBranches)
	for _, old := range c.branches {
		switch {
		case old.ticket.ID == t.ID || !old.usable(now):
			leaving = append(leaving, old)
		case t.HandedBack() && t.OutdatedBy(&old.ticket.Branch):
			return nil, false
		case t.Displaces(&old.ticket.Branch):
			leaving = append(leaving, old)
		default:
			staying = append(staying, old)
		}
	}
	if len(staying) == maxBranches {
		oldest := oldestFor(t, staying)
		if oldest == nil {
			return nil, false
		}
		leaving = append(leaving, oldest)
	}
	for _, old := range leaving {
		m.remove(old)
		if old.ticket.ID != t.ID && old.usable(now) {
			displaced = append(displaced, old.ticket)
		}
	}
	return displaced, true
}

// oldestFor returns the oldest branch that t may replace; a note replaces no ticket.
func oldestFor(t *Ticket, branches []*stored) *stored {
	for _, old := range slices.Backward(branches) {
		if !t.HandedBack() || old.ticket.HandedBack() {
			return old
		}
	}
	return nil
}

// shrink makes room for a ticket that fits alone, and returns the removed tickets that are still usable.
func (m *Memory) shrink(key Key, weight int64, now time.Time) []Ticket {
	var displaced []Ticket
	latest := m.conversations[key]
	if latest != nil {
		m.accounts.Use(latest.place)
	}
	for len(m.expiry) >= m.maxEntries || m.bytes+weight > m.maxBytes {
		if first := m.expiry[0]; !first.usable(now) {
			m.remove(first)
			continue
		}
		oldest := m.accounts.Most().Oldest().Value
		leaving := slices.Clone(oldest.branches)
		if oldest == latest {
			leaving = leaving[len(leaving)-1:] // its account has no other conversation
		}
		for _, s := range leaving {
			m.remove(s)
			if s.usable(now) {
				displaced = append(displaced, s.ticket)
			}
		}
	}
	return displaced
}

// add makes s the newest branch, and its conversation the most recently used.
func (m *Memory) add(key Key, s *stored) {
	c := m.conversations[key]
	if c == nil {
		c = &conversation{key: key}
		c.place = m.accounts.Add(s.ticket.Account, 0, c)
		m.conversations[key] = c
	}
	s.home = c
	m.aliases -= c.only()
	c.branches = slices.Insert(c.branches, 0, s)
	c.aliases += s.ticket.alias()
	m.aliases += c.only()
	heap.Push(&m.expiry, s)
	m.weigh(c, s.weight())
}

func (m *Memory) weigh(c *conversation, change int64) {
	m.bytes += change
	c.bytes += change
	m.accounts.Weigh(c.place, c.bytes)
}

// remove reports whether the conversation is gone with its last ticket.
func (m *Memory) remove(s *stored) (emptied bool) {
	heap.Remove(&m.expiry, s.heapAt)
	c := s.home
	m.weigh(c, -s.weight())
	m.aliases -= c.only()
	c.aliases -= s.ticket.alias()
	c.branches = slices.DeleteFunc(c.branches, func(other *stored) bool { return other == s })
	m.aliases += c.only()
	if len(c.branches) > 0 {
		return false
	}
	m.accounts.Remove(c.place)
	delete(m.conversations, c.key)
	return true
}

// Len returns the number of conversations, except those with only aliases. Notes and tickets that await removal count.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.conversations) - m.aliases
}
