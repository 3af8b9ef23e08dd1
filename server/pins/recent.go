package pins

import (
	"carryover/convcache"
	"carryover/server/record"
)

// recent is why the tickets of conversations were given up, in two generations. The older generation is forgotten as a whole.
type recent struct {
	young, old map[convcache.Key]record.Reason
}

// maxRecent bounds a generation: 1 MB.
const maxRecent = 1 << 14

func (r *recent) add(key convcache.Key, why record.Reason) {
	if r.young == nil || len(r.young) >= maxRecent {
		r.old, r.young = r.young, map[convcache.Key]record.Reason{}
	}
	r.young[key] = why
}

func (r *recent) forget(key convcache.Key) {
	delete(r.young, key)
	delete(r.old, key)
}

func (r *recent) why(key convcache.Key) record.Reason {
	if why, young := r.young[key]; young {
		return why
	}
	return r.old[key]
}
