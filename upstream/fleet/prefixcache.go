package fleet

import (
	"carryover/upstream/fleet/facts"
	"slices"
	"sync"
	"time"
)

// prefixCache says whether the prefix cache of a prefill incarnation keeps what is handed back to it until the next turn comes.
type prefixCache struct {
	mu      sync.Mutex
	caching facts.Finding // whether prefix caching is on
	evicted int           // turns in a row that did not find what was handed back for them
	until   time.Time     // no hand-back before
	engines []string      // ids of the engines that have answered as this incarnation
}

// When a prefix cache counts as too small for hand-backs.
const (
	// maxEvicted is how many turns in a row may find nothing of what was handed back for them. Each of them has
	// computed what its ticket would have saved.
	maxEvicted = 8
	// evictedRest is how long nothing is handed back then. The first turn after it that finds nothing renews it.
	evictedRest = 10 * time.Minute
)

// tell records what a reading said about prefix caching.
func (k *prefixCache) tell(caching facts.Finding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.caching = caching
}

// CachesPrefixes says whether the incarnation has prefix caching on (enable_prefix_caching).
func (s *Incarnation) CachesPrefixes() facts.Finding {
	k := &s.prefixCache
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.caching
}

// Forgets says why a prefill incarnation does not keep what is handed back to it: its prefix caching is off
// (vllm:cache_config_info), or turns in a row found nothing of it. It returns "" if nothing speaks against a
// hand-back.
func (s *Incarnation) Forgets() (why string) {
	k := &s.prefixCache
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.caching == facts.No:
		return "its prefix caching is off"
	case s.engine.fleet.now().Before(k.until):
		return "its prefix cache has evicted it before the turns came"
	}
	return ""
}

// HandedBackFound records whether a turn found in the prefix cache what had been handed back for it.
func (s *Incarnation) HandedBackFound(found bool) {
	k := &s.prefixCache
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

// maxEngines bounds the recorded engine ids of one incarnation: it may have several data-parallel ranks, or several
// processes behind one address.
const maxEngines = 16

// AnsweredAs records that an engine with that id has answered, "" if the answer names none. It returns false if other
// ids were recorded for this incarnation, and this one was not: then another process or rank answers, possibly after a
// restart that no reading has shown yet, and its prefix cache has nothing of what was handed back.
func (s *Incarnation) AnsweredAs(engineID string) (known bool) {
	k := &s.prefixCache
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
