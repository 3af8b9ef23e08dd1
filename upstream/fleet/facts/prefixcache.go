package facts

import (
	"slices"
	"sync"
	"time"
)

// PrefixCache is whether the prefix cache of a prefill incarnation keeps what is handed back to it until the next turn
// comes.
type PrefixCache struct {
	now func() time.Time

	mu      sync.Mutex // guards the rest
	caching Finding    // whether prefix caching is on
	evicted int        // turns in a row that did not find what was handed back for them
	until   time.Time  // no hand-back before
	engines []string   // ids of the engines that have answered as this incarnation
}

// When a prefix cache counts as too small for hand-backs.
const (
	// maxEvicted is how many turns in a row may find nothing of what was handed back for them. Each of them has
	// computed what its ticket would have saved.
	maxEvicted = 8
	// evictedRest is how long nothing is handed back then. The first turn after it that finds nothing renews it.
	evictedRest = 10 * time.Minute
)

// Told records what a reading said about prefix caching.
func (k *PrefixCache) Told(caching Finding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.caching = caching
}

// On says whether the incarnation has prefix caching on (enable_prefix_caching).
func (k *PrefixCache) On() Finding {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.caching
}

// Forgets says why a prefill incarnation does not keep what is handed back to it: its prefix caching is off
// (vllm:cache_config_info), or turns in a row found nothing of it. It returns "" if nothing speaks against a
// hand-back.
func (k *PrefixCache) Forgets() (why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.caching == No:
		return "its prefix caching is off"
	case k.now().Before(k.until):
		return "its prefix cache has evicted it before the turns came"
	}
	return ""
}

// HandedBackFound records whether a turn found in the prefix cache what had been handed back for it.
func (k *PrefixCache) HandedBackFound(found bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if found {
		k.evicted = 0
		return
	}
	if k.evicted++; k.evicted >= maxEvicted {
		k.evicted = maxEvicted - 1
		k.until = k.now().Add(evictedRest)
	}
}

// maxEngines bounds the recorded engine ids of one incarnation: it may have several data-parallel ranks, or several
// processes behind one address.
const maxEngines = 16

// AnsweredAs records that an engine with that id has answered, "" if the answer names none. It returns false if other
// ids were recorded for this incarnation, and this one was not: then another process or rank answers, possibly after a
// restart that no reading has shown yet, and its prefix cache has nothing of what was handed back.
func (k *PrefixCache) AnsweredAs(engineID string) (known bool) {
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
