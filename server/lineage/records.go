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
	name    func(p Address, incarnation string) convcache.Incarnation
	changed func() // is called when more KV is in doubt; it must neither wait nor call back
	clock   clock

	doubts atomic.Int64 // how many doubts are known; if there are none, no KV is in doubt

	mu        sync.Mutex // guards the rest
	engines   map[Address]*engine
	forgotten int64 // the latest use of any engine that has been forgotten
	known     map[doubt]window
	found     map[doubt]struct{} // doubts that this replica found
	published map[doubt]int64    // since when each doubt exists, as it was published to the other replicas
	order     []doubt            // the keys of known, oldest first
}

// doubt names what is in doubt: an incarnation, or one space of an exposed one.
type doubt struct {
	incarnation convcache.Incarnation
	exposed     bool
	space       uint64
}

// window is the time in which KV in doubt may have left a cache that a lineage does not name.
type window struct {
	since int64
	until int64 // by then all replicas had heard of the doubt, and no longer used KV that descends from it
}

// engine is what is known about the engine at an address.
type engine struct {
	caches  map[string]*cache // by the id of the incarnation
	last    *cache            // the cache that was used last
	pending convcache.Lineage // KV that entered the cache while the incarnation was not known; it counts for the next known one
}

// cache is the prefix cache of one incarnation, in the space that legs use now.
type cache struct {
	incarnation convcache.Incarnation
	space       uint64
	salt        string
	line        convcache.Lineage // lineage of the KV that has entered the space
	good        int64             // when the last leg with a good id echo was sent
	exposed     time.Time         // since when the cache has a salt, zero if it has none
	used        int64
}

// Limits of what is kept.
const (
	maxEngines      = 4096
	maxIncarnations = 4 // incarnations of one engine
	// maxDoubts bounds the doubts that are known; beyond it the oldest is forgotten. Its tickets have expired long before that many are
	// found.
	maxDoubts = 1 << 13
)

// New returns Records that name incarnations with the function name, and call changed whenever more KV is in doubt than before.
func New(name func(p Address, incarnation string) convcache.Incarnation, changed func()) *Records {
	return &Records{
		name: name, changed: changed, clock: clock{born: time.Now(), now: time.Now},
		engines: map[Address]*engine{}, known: map[doubt]window{}, found: map[doubt]struct{}{}, published: map[doubt]int64{},
	}
}

// Space is the prefix cache of an incarnation as one leg uses it: the KV that the leg computes is stored in it, and the KV that the leg
// finds comes from it. The zero Space is for a leg whose salt no other leg has.
type Space struct {
	cache       *cache
	incarnation convcache.Incarnation
	space       uint64
	salt        string
	address     Address
	unknown     bool  // the incarnation is not known
	sent        int64 // when the leg is sent
	since       int64 // if this leg shows that the incarnation computes other ids, KV that left the cache from this moment on is in doubt
}

// Salt returns the text to put in front of the request's own cache_salt, "" for none.
func (s Space) Salt() string { return s.salt }

// Cache names the prefix cache of the space; both results are zero for the zero Space, which no other leg finds.
func (s Space) Cache() (convcache.Incarnation, uint64) {
	if s.cache == nil {
		return 0, 0
	}
	return s.incarnation, s.space
}

// Enter returns the space of an incarnation for a leg that brings KV with this lineage into it. If that KV is in doubt, Enter returns false
// and records nothing. incarnation is "" if it is not known.
func (r *Records) Enter(p Address, incarnation string, l convcache.Lineage) (Space, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, bad := r.inDoubt(&l); bad {
		return Space{}, false
	}
	if l.Unknown() {
		l.Others = r.clock.latest()
	}
	at, c := r.at(p, incarnation)
	c.line.Join(l)
	if incarnation == "" {
		at.pending.Join(l)
	}
	return r.enter(p, c, incarnation), true
}

// At returns the space of an incarnation for a leg that brings no KV into it except what it computes.
func (r *Records) At(p Address, incarnation string) Space {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, c := r.at(p, incarnation)
	return r.enter(p, c, incarnation)
}

// enter makes the Space of a cache. The caller holds r.mu.
func (r *Records) enter(p Address, c *cache, incarnation string) Space {
	return Space{
		cache: c, incarnation: c.incarnation, space: c.space, salt: c.salt, address: p, unknown: incarnation == "", sent: r.clock.earliest(), since: c.good,
	}
}

// Leaves returns the lineage of KV that leaves a space now.
func (r *Records) Leaves(s Space) (l convcache.Lineage) {
	if s.cache == nil {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.latest()
	if s.cache.space == s.space { // all KV of an earlier space is in doubt anyway
		l = s.cache.line.Clone()
	}
	l.Add(convcache.Ancestor{Incarnation: s.cache.incarnation, Space: s.space, Until: now})
	if s.unknown { // it may be another incarnation than the one that was used last
		l.Add(convcache.Ancestor{Incarnation: r.name(s.address, ""), Until: now})
	}
	return l
}

// at returns what is known about an incarnation. If incarnation is "", that is the incarnation that was used last. The caller holds r.mu.
func (r *Records) at(p Address, incarnation string) (*engine, *cache) {
	at := r.engines[p]
	if at == nil {
		r.forgetOldest()
		at = &engine{caches: map[string]*cache{}}
		r.engines[p] = at
	}
	c := at.caches[incarnation]
	switch {
	case c != nil:
	case incarnation == "" && at.last != nil:
		c = at.last
	case at.caches[""] != nil: // the unknown incarnation is known now
		c = at.caches[""]
		delete(at.caches, "")
		c.incarnation = r.name(p, incarnation)
		at.caches[incarnation] = c
		r.judge(c)
	default:
		c = &cache{incarnation: r.name(p, incarnation), line: convcache.Lineage{Others: r.forgotten}}
		at.add(incarnation, c)
		r.judge(c)
	}
	c.used = r.clock.latest()
	if at.last = c; incarnation != "" && !at.pending.Unknown() {
		c.line.Join(at.pending)
		at.pending = convcache.Lineage{}
	}
	if r.spreadTo(c) { // KV in doubt may be in what was pending or forgotten
		r.spread()
	}
	return at, c
}

// judge exposes a cache that any replica has found to be exposed. The caller holds r.mu.
func (r *Records) judge(c *cache) {
	if _, exposed := r.known[doubt{c.incarnation, true, c.space}]; exposed {
		r.expose(c)
	}
}

// add adds an incarnation. If there are too many, it replaces the one that was used longest ago.
func (p *engine) add(incarnation string, c *cache) {
	if len(p.caches) >= maxIncarnations {
		oldest := ""
		for name, other := range p.caches {
			if old := p.caches[oldest]; old == nil || other.used < old.used {
				oldest = name
			}
		}
		delete(p.caches, oldest)
	}
	p.caches[incarnation] = c
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

// Exposed returns since when legs to an incarnation carry the salt of a quarantine; false if they carry none.
func (r *Records) Exposed(p Address, incarnation string) (since time.Time, exposed bool) {
	if r.doubts.Load() == 0 {
		return since, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.engines[p]
	if at == nil || at.caches[incarnation] == nil {
		return since, false
	}
	since = at.caches[incarnation].exposed
	return since, !since.IsZero()
}

// expose gives a cache a new space, which is empty. The caller holds r.mu.
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

// clock returns moments that can be compared with those of other replicas. The wall clock may be set while the process runs, and the
// monotonic clock stands still while a machine is suspended. So KV that leaves a cache gets the later reading, and a doubt the earlier one.
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
