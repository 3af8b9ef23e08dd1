package lineage

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"carryover/convcache"
)

// Address names an engine by its URL and its data-parallel rank. Ranks share a URL, and each has its own prefix cache.
type Address struct {
	URL    string
	Rank   int
	Ranked bool
}

// Records hold what is known about the prefix caches of all engines. They are safe for concurrent use.
type Records struct {
	name    func(p Address, start string) convcache.Incarnation
	changed func() // is called when more KV is in doubt; it must neither wait nor call back
	clock   clock

	doubts atomic.Int64 // how many quarantines are known: with none nothing is in doubt

	mu        sync.Mutex // guards the rest
	engines   map[Address]*engine
	forgotten int64 // the latest moment up to which engines were known that have been forgotten
	known     map[doubt]window
	found     map[doubt]struct{} // doubts that this replica found
	published map[doubt]int64    // since when each doubt exists, as the other replicas were told
	order     []doubt            // the keys of known, oldest first
}

// doubt names what is in doubt: an incarnation, or one space of an exposed one.
type doubt struct {
	incarnation convcache.Incarnation
	exposed     bool
	space       uint64
}

// window is the time in which KV in doubt may have come out of a cache that a lineage does not name.
type window struct {
	since int64
	until int64 // all replicas had heard of it by then, and used nothing any more that descends from it
}

// engine is what is known about the engine at an address.
type engine struct {
	caches  map[string]*cache // by start
	last    *cache            // the cache that was used last
	pending convcache.Lineage // KV that entered the cache while the incarnation was not known; it counts for the next known one
}

// cache is the prefix cache of one incarnation, in the space that legs use now.
type cache struct {
	incarnation convcache.Incarnation
	space       uint64
	salt        string
	line        convcache.Lineage // of what has entered the space
	good        int64             // when the last leg was sent that was answered with the ids that it was sent
	exposed     time.Time         // since when it has a salt, zero if it has none
	used        int64
}

// Limits of what is kept.
const (
	maxEngines = 4096
	maxStarts  = 4 // incarnations of one engine
	// maxDoubts bounds the quarantines that are known; the oldest goes. Its tickets have ended long before there are as many.
	maxDoubts = 1 << 13
)

// New returns records that name incarnations by name, and tell changed whenever more is in doubt than before.
func New(name func(p Address, start string) convcache.Incarnation, changed func()) *Records {
	return &Records{
		name: name, changed: changed, clock: clock{born: time.Now(), now: time.Now},
		engines: map[Address]*engine{}, known: map[doubt]window{}, found: map[doubt]struct{}{}, published: map[doubt]int64{},
	}
}

// Space is the cache of an incarnation as a leg finds it: what the leg computes is filed in it, and what it finds comes out of it. The
// zero Space is that of a leg whose salt no other leg has.
type Space struct {
	cache       *cache
	incarnation convcache.Incarnation
	space       uint64
	salt        string
	address     Address
	unknown     bool  // the start is not known
	sent        int64 // when the leg is sent
	since       int64 // from when on what came out is in doubt, if this leg shows that the incarnation computes other ids
}

// Salt is what is to stand before the request's own cache_salt, "" for nothing.
func (s Space) Salt() string { return s.salt }

// Cache names the prefix cache of the space, with zeros for one that no other leg finds.
func (s Space) Cache() (convcache.Incarnation, uint64) {
	if s.cache == nil {
		return 0, 0
	}
	return s.incarnation, s.space
}

// Enter returns the space of an incarnation to a leg that brings KV of that lineage into it, and false, and nothing is entered, if that
// KV is in doubt. start is "" if it is not known.
func (r *Records) Enter(p Address, start string, l convcache.Lineage) (Space, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, bad := r.inDoubt(&l); bad {
		return Space{}, false
	}
	if l.Unknown() {
		l.Others = r.clock.latest()
	}
	at, c := r.at(p, start)
	c.line.Join(l)
	if start == "" {
		at.pending.Join(l)
	}
	return r.enter(p, c, start), true
}

// At returns the space of an incarnation to a leg that brings nothing into it but what it computes.
func (r *Records) At(p Address, start string) Space {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, c := r.at(p, start)
	return r.enter(p, c, start)
}

// enter needs r.mu.
func (r *Records) enter(p Address, c *cache, start string) Space {
	return Space{
		cache: c, incarnation: c.incarnation, space: c.space, salt: c.salt, address: p, unknown: start == "", sent: r.clock.earliest(), since: c.good,
	}
}

// Leaves returns the lineage of KV that comes out of a space now.
func (r *Records) Leaves(s Space) (l convcache.Lineage) {
	if s.cache == nil {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.latest()
	if s.cache.space == s.space { // of one that was left all is in doubt
		l = s.cache.line.Clone()
	}
	l.Add(convcache.Ancestor{Incarnation: s.cache.incarnation, Space: s.space, Until: now})
	if s.unknown { // it may be another than the one that was used last
		l.Add(convcache.Ancestor{Incarnation: r.name(s.address, ""), Until: now})
	}
	return l
}

// at returns what is known of an incarnation. Of one whose start is not known that is the one that was used last. It needs r.mu.
func (r *Records) at(p Address, start string) (*engine, *cache) {
	at := r.engines[p]
	if at == nil {
		r.forgetOldest()
		at = &engine{caches: map[string]*cache{}}
		r.engines[p] = at
	}
	c := at.caches[start]
	switch {
	case c != nil:
	case start == "" && at.last != nil:
		c = at.last
	case at.caches[""] != nil: // its start is known now
		c = at.caches[""]
		delete(at.caches, "")
		c.incarnation = r.name(p, start)
		at.caches[start] = c
		r.judge(c)
	default:
		c = &cache{incarnation: r.name(p, start), line: convcache.Lineage{Others: r.forgotten}}
		at.add(start, c)
		r.judge(c)
	}
	c.used = r.clock.latest()
	if at.last = c; start != "" && !at.pending.Unknown() {
		c.line.Join(at.pending)
		at.pending = convcache.Lineage{}
	}
	if r.spreadTo(c) { // by what was pending, or forgotten
		r.spread()
	}
	return at, c
}

// judge exposes a cache that replicas have found to be exposed. It needs r.mu.
func (r *Records) judge(c *cache) {
	if _, exposed := r.known[doubt{c.incarnation, true, c.space}]; exposed {
		r.expose(c)
	}
}

// add adds an incarnation, in place of the one that was used longest ago if there are too many.
func (p *engine) add(start string, c *cache) {
	if len(p.caches) >= maxStarts {
		oldest := ""
		for name, other := range p.caches {
			if old := p.caches[oldest]; old == nil || other.used < old.used {
				oldest = name
			}
		}
		delete(p.caches, oldest)
	}
	p.caches[start] = c
}

// forgetOldest forgets the engine that was used longest ago, if there are too many; exposed engines are forgotten last. Any engine that comes
// later may be the forgotten one. The caller holds r.mu.
func (r *Records) forgetOldest() {
	if len(r.engines) < maxEngines {
		return
	}
	var oldest Address
	var of *engine
	for p, at := range r.engines {
		if of == nil || at.before(of) {
			oldest, of = p, at
		}
	}
	for _, c := range of.caches {
		r.forgotten = max(r.forgotten, c.used)
	}
	delete(r.engines, oldest)
}

func (p *engine) before(other *engine) bool {
	if mine, others := p.last.exposed.IsZero(), other.last.exposed.IsZero(); mine != others {
		return mine
	}
	return p.last.used < other.last.used
}

// Exposed returns since when legs to an incarnation have a salt of a quarantine.
func (r *Records) Exposed(p Address, start string) (since time.Time, exposed bool) {
	if r.doubts.Load() == 0 {
		return since, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.engines[p]
	if at == nil || at.caches[start] == nil {
		return since, false
	}
	since = at.caches[start].exposed
	return since, !since.IsZero()
}

// expose gives a cache another space, which is empty. It needs r.mu.
func (r *Records) expose(c *cache) {
	var random [24]byte
	rand.Read(random[:]) // since Go 1.24 it fills the slice or ends the process
	c.space = binary.BigEndian.Uint64(random[16:]) | 1
	c.salt = "quarantine-" + base64.RawURLEncoding.EncodeToString(random[:16]) + "~"
	c.line = convcache.Lineage{}
	if c.exposed.IsZero() {
		c.exposed = r.clock.now()
	}
}

// clock tells moments that may be compared with those of other replicas. Within a process the wall clock may be set, and the monotonic
// one stands still while a machine is suspended: of what came out the later one counts, and of what is in doubt the earlier one.
type clock struct {
	born time.Time
	now  func() time.Time
}

func (c clock) both() (wall, steady int64) {
	now := c.now()
	return now.UnixNano(), c.born.UnixNano() + int64(now.Sub(c.born))
}

func (c clock) latest() int64 { return max(c.both()) }

func (c clock) earliest() int64 { return min(c.both()) }
