package lineage

import (
	"math"

	"carryover/convcache"
)

// heard is how long it takes until all replicas that share tickets have heard of a quarantine: they ask every second.
const heard = int64(10e9)

// skew is how far the clocks of replicas may be apart; tickets of clocks that are further apart are refused (package redisstore).
const skew = int64(2e9)

// Good notes that a leg was answered with the ids that it was sent.
func (r *Records) Good(s Space) {
	if s.cache == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.cache.good = max(s.cache.good, s.sent)
}

// Bad puts the incarnation under quarantine to which a leg was sent that was answered with other ids than it was sent.
func (r *Records) Bad(s Space) {
	if s.cache != nil {
		r.quarantine(s.since, s.cache.incarnation, r.name(s.address, ""))
	}
}

// Quarantine puts an incarnation under quarantine of which it is not known since when it computes other ids. start is known.
func (r *Records) Quarantine(p Address, start string) {
	r.mu.Lock()
	_, c := r.at(p, start)
	_, known := r.known[doubt{incarnation: c.incarnation}]
	r.mu.Unlock()
	if !known {
		r.quarantine(0, c.incarnation, r.name(p, ""))
	}
}

// quarantine puts an incarnation under quarantine, and the engine at its place as far as its start was not known.
func (r *Records) quarantine(since int64, incarnation, unknown convcache.Incarnation) {
	r.mu.Lock()
	r.doubt(doubt{incarnation: incarnation}, since, true)
	r.doubt(doubt{incarnation: unknown}, since, true)
	r.spread()
	r.mu.Unlock()
	r.changed()
}

// Quarantined reports whether an incarnation is under quarantine, by what any replica has found. start is known.
func (r *Records) Quarantined(p Address, start string) bool {
	if r.doubts.Load() == 0 {
		return false
	}
	name := r.name(p, start)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.known[doubt{incarnation: name}]
	return known
}

// InDoubt reports whether KV of that lineage is in doubt. KV of which nothing is known is, as soon as any is.
func (r *Records) InDoubt(l convcache.Lineage) bool {
	if r.doubts.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, bad := r.inDoubt(&l)
	return bad
}

// inDoubt returns since when what has come out of a cache into which such KV came is in doubt, too. It needs r.mu.
func (r *Records) inDoubt(l *convcache.Lineage) (since int64, bad bool) {
	if len(r.known) == 0 {
		return 0, false
	}
	if l.Unknown() {
		return 0, true
	}
	since = math.MaxInt64
	for i := len(r.order) - 1; i >= 0 && l.Others > 0; i-- {
		w := r.known[r.order[i]]
		if w.until < l.Others { // nor have those before lasted longer
			break
		}
		if w.since <= l.Others {
			since, bad = min(since, w.since), true
		}
	}
	for _, a := range l.Ancestors {
		for _, d := range [...]doubt{{incarnation: a.Incarnation}, {a.Incarnation, true, a.Space}} {
			if w, known := r.known[d]; known && a.Until >= w.since {
				since, bad = min(since, w.since), true
			}
		}
	}
	return since, bad
}

// doubt notes what is in doubt, and reports whether that is more than was known. It needs r.mu.
func (r *Records) doubt(d doubt, since int64, here bool) (more bool) {
	w, known := r.known[d]
	if known && w.since <= since {
		return false
	}
	if !known {
		if len(r.order) >= maxDoubts {
			oldest := r.order[0]
			r.order = r.order[1:]
			delete(r.known, oldest)
			delete(r.found, oldest)
			delete(r.published, oldest)
		}
		r.order = append(r.order, d)
		w.until = r.clock.latest() + heard
	}
	w.since = since
	r.known[d] = w
	if here {
		r.found[d] = struct{}{}
	}
	r.doubts.Store(int64(len(r.known)))
	return true
}

// spread exposes each cache that KV in doubt has entered, until what comes out of these has entered no other. It needs r.mu.
func (r *Records) spread() {
	if len(r.known) == 0 {
		return
	}
	for more := true; more; {
		more = false
		for _, at := range r.engines {
			for _, c := range at.caches {
				if r.spreadTo(c) {
					more = true
				}
			}
		}
	}
}

// spreadTo reports whether a cache was exposed. One that has had nothing is not in doubt. It needs r.mu.
func (r *Records) spreadTo(c *cache) bool {
	since, bad := r.inDoubt(&c.line)
	if !bad || c.line.Unknown() {
		return false
	}
	if _, quarantined := r.known[doubt{incarnation: c.incarnation}]; quarantined {
		return false
	}
	r.doubt(doubt{c.incarnation, true, c.space}, since, true)
	r.expose(c)
	r.changed()
	return true
}

// Adopt takes over what replicas have found, and returns what they are to be told of what was found here.
func (r *Records) Adopt(all []convcache.Quarantine) (tell []convcache.Quarantine) {
	r.mu.Lock()
	more := false
	shared := make(map[doubt]int64, len(all))
	for _, q := range all {
		d := doubt{q.Incarnation, q.Exposed, q.Space}
		shared[d] = q.Since
		if w, known := r.known[d]; known && w.since <= q.Since {
			continue
		}
		if r.doubt(d, max(q.Since-skew, 0), false) {
			more = true
			if q.Exposed {
				r.exposeAll(d)
			}
		}
	}
	if more {
		r.spread()
	}
	for d := range r.found {
		since, told := r.published[d]
		if !told {
			since = r.known[d].since
			r.published[d] = since
		}
		if there, found := shared[d]; !found || since < there {
			tell = append(tell, convcache.Quarantine{Incarnation: d.incarnation, Exposed: d.exposed, Space: d.space, Since: since})
		}
	}
	r.mu.Unlock()
	if more {
		r.changed()
	}
	return tell
}

// exposeAll exposes the cache that another replica has found to be exposed, if it is in that space still. It needs r.mu.
func (r *Records) exposeAll(d doubt) {
	for _, at := range r.engines {
		for _, c := range at.caches {
			if c.incarnation == d.incarnation && c.space == d.space {
				r.expose(c)
			}
		}
	}
}
