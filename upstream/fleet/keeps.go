package fleet

import (
	"slices"
	"sync"
	"time"
)

// keeping is whether a start of prefill keeps what is handed back to it until its turn comes.
type keeping struct {
	mu      sync.Mutex
	caching Finding   // whether its prefix caching is on
	evicted int       // turns in a row that have not found what was handed back
	until   time.Time // nothing is handed back to it before
	engines []string  // ids of engines that have answered in this start
}

// Bounds of what teaches that a cache is too small.
const (
	// maxEvicted is how many turns in a row may find nothing of what was handed back. Each has computed what its ticket would have saved.
	maxEvicted = 8
	// evictedRest is how long nothing is handed back after that. The first turn that finds nothing then renews it.
	evictedRest = 10 * time.Minute
)

// tell takes in what a reading told of prefix caching.
func (k *keeping) tell(caching Finding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.caching = caching
}

// CachesPrefixes says whether a start keeps the KV of prompts for others that begin alike (enable_prefix_caching).
func (s *Incarnation) CachesPrefixes() Finding {
	k := &s.keeping
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.caching
}

// Forgets says why a start of prefill does not keep what is handed back to it, "" if it does as far as is known: its prefix caching is
// off (vllm:cache_config_info), or turns in a row have found nothing of it. A ticket is worth more to the next turn then.
func (s *Incarnation) Forgets() (why string) {
	k := &s.keeping
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.caching == No:
		return "its prefix caching is off"
	case s.engine.fleet.now().Before(k.until):
		return "its prefix cache has evicted it before the turns came"
	}
	return ""
}

// HandedBackFound records whether a turn has found in the prefix cache what had been handed back to the start for it.
func (s *Incarnation) HandedBackFound(found bool) {
	k := &s.keeping
	k.mu.Lock()
	defer k.mu.Unlock()
	if found {
		k.evicted = 0
		return
	}
	if k.evicted++; k.evicted >= maxEvicted {
		k.evicted = maxEvicted - 1
		k.until = s.engine.fleet.now().Add(evictedRest)
	}
}

// maxEngines bounds the ids of engines that are known of one start: of its data-parallel ranks, or of several processes behind an address.
const maxEngines = 16

// AnsweredAs records that an engine of that id has answered, "" for one that tells none, and reports whether that was heard of this
// start before, or nothing was. Another one is another process or rank: a restart that no reading has shown yet, whose prefix cache
// has nothing of what was handed back.
func (s *Incarnation) AnsweredAs(engineID string) (known bool) {
	k := &s.keeping
	k.mu.Lock()
	defer k.mu.Unlock()
	if engineID == "" || slices.Contains(k.engines, engineID) {
		return true
	}
	if len(k.engines) < maxEngines {
		k.engines = append(k.engines, engineID)
	}
	return len(k.engines) == 1
}
