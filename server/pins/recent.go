package pins

import "carryover/convcache"

// recent is a set of conversations in two generations. The older generation is forgotten as a whole.
type recent struct{ young, old map[convcache.Key]struct{} }

// maxRecent bounds a generation: 1 MB.
const maxRecent = 1 << 14

func (r *recent) add(key convcache.Key) {
	if r.young == nil || len(r.young) >= maxRecent {
		r.old, r.young = r.young, map[convcache.Key]struct{}{}
	}
	r.young[key] = struct{}{}
}

func (r *recent) forget(key convcache.Key) {
	delete(r.young, key)
	delete(r.old, key)
}

func (r *recent) has(key convcache.Key) bool {
	_, young := r.young[key]
	_, old := r.old[key]
	return young || old
}
