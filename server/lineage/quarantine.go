package lineage

import (
	"math"

	"carryover/convcache"
)

// heard is how long it takes until all replicas that share tickets know of a quarantine: each asks every second.
const heard = int64(10e9)

// skew is how far the clocks of replicas may differ; tickets of clocks that differ more are refused (package redisstore).
const skew = int64(2e9)

// Good records that the answer to a leg repeated the ids that the leg sent.
func (r *Records) Good(s Space) {
	if s.cache == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.cache.good = max(s.cache.good, s.sent)
}

// Bad quarantines the incarnation that answered a leg with other ids than the leg sent.
func (r *Records) Bad(s Space) {
	if s.cache != nil {
		r.quarantine(s.since, s.cache.incarnation, r.name(s.address, ""))
	}
}

// Quarantine quarantines an incarnation that computes other ids since an unknown moment. incarnation is its id, which must be known.
func (r *Records) Quarantine(p Address, incarnation string) {
	r.mu.Lock()
	_, c := r.at(p, incarnation)
	_, known := r.known[doubt{incarnation: c.incarnation}]
	r.mu.Unlock()
	if !known {
		r.quarantine(0, c.incarnation, r.name(p, ""))
	}
}

// quarantine quarantines an incarnation, and also the unknown incarnation at its address, which stands for legs that were sent before the
// incarnation was known.
func (r *Records) quarantine(since int64, incarnation, unknown convcache.Incarnation) {
	r.mu.Lock()
	r.doubt(doubt{incarnation: incarnation}, since, true)
	r.doubt(doubt{incarnation: unknown}, since, true)
	r.spread()
	r.mu.Unlock()
	r.changed()
}

// Quarantined reports whether an incarnation is quarantined by any replica. incarnation is its id, which must be known.
func (r *Records) Quarantined(p Address, incarnation string) bool {
	if r.doubts.Load() == 0 {
		return false
	}
	name := r.name(p, incarnation)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.known[doubt{incarnation: name}]
	return known
}

// InDoubt reports whether KV with this lineage is in doubt. As soon as there is any doubt, KV with an unknown lineage is in doubt.
func (r *Records) InDoubt(l convcache.Lineage) bool {
	if r.doubts.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, bad := r.inDoubt(&l)
	return bad
}

// inDoubt reports whether KV with this lineage is in doubt. since is the moment from which KV that left a cache with such KV in it is in
// doubt, too. The caller holds r.mu.
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
		if w.until < l.Others { // earlier doubts ended no later
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

// doubt records a doubt, and reports whether it adds to what was known. here says that this replica found it. The caller holds r.mu.
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

// spread exposes each cache that KV in doubt has entered, and repeats this for the KV that left those caches until no other cache is
// affected. The caller holds r.mu.
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

// spreadTo exposes a cache if KV in doubt has entered it, and reports whether it did. A cache that nothing has entered is not in doubt. The
// caller holds r.mu.
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

// Adopt takes over the quarantines that replicas have found. It returns those found here that the other replicas must be told about.
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

// exposeAll exposes the cache that another replica has found to be exposed, if the cache still uses that space. The caller holds r.mu.
func (r *Records) exposeAll(d doubt) {
	for _, at := range r.engines {
		for _, c := range at.caches {
			if c.incarnation == d.incarnation && c.space == d.space {
				r.expose(c)
			}
		}
	}
}
