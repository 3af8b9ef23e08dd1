package facts

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// AnswerIDs learns whether an engine's answers carry the request's id. That depends on the gateway before the engine,
// so it survives restarts.
type AnswerIDs struct{ echoes atomic.Bool }

// Foreign reports whether an answer with this id can't belong to the leg. vLLM makes the id from the leg's
// X-Request-Id; a Responses answer has the requested id. A gateway may replace ids, which then prove nothing. An engine
// that has echoed an id once is expected to do so always, also after restarts.
func (a *AnswerIDs) Foreign(leg, id string) bool {
	if rest, own := strings.CutSuffix(id, leg); own && (strings.HasSuffix(rest, "-") || rest == "resp_") {
		a.echoes.Store(true)
		return false
	}
	return id != "" && a.echoes.Load()
}

// PlugIn learns whether a decode incarnation's params carry output_token_ids, which a plug-in in vLLM adds.
type PlugIn struct {
	known bool // an unknown incarnation learns nothing
	found atomic.Int32
}

// Found returns the finding of the answers so far.
func (p *PlugIn) Found() Finding { return Finding(p.found.Load()) }

// Learn records whether the params of an answer that could leave a ticket had output ids. One answer without them is No
// for good: a turn without ids leaves no ticket, so a plug-in that adds them only sometimes is useless.
func (p *PlugIn) Learn(present bool) {
	switch {
	case !p.known:
	case present:
		p.found.CompareAndSwap(int32(Unknown), int32(Yes))
	default:
		p.found.Store(int32(No))
	}
}

// SilentAfter is how many finished answers in a row without params make a decode incarnation silent. vLLM may leave
// params out of a single answer for reasons of its own.
const SilentAfter = 3

// Silence learns whether a decode incarnation leaves kv_transfer_params out of its answers.
type Silence struct{ answers atomic.Int64 } // in a row without params

// SentNothing records a finished answer to a hand-over without params, and reports whether that makes the incarnation
// silent. Stock vLLM sends none in any stream (vLLM #40186).
func (s *Silence) SentNothing() (silent bool) { return s.answers.Add(1) == SilentAfter }

// SentParams records an answer with params.
func (s *Silence) SentParams() { s.answers.Store(0) }

// Silent reports whether the incarnation sends no params.
func (s *Silence) Silent() bool { return s.answers.Load() >= SilentAfter }

// PrefixCache learns whether a prefill incarnation's prefix cache keeps a hand-back until the next turn.
type PrefixCache struct {
	now func() time.Time

	mu      sync.Mutex // guards the rest
	caching Finding    // prefix caching is on
	evicted int        // turns in a row that did not find their hand-back
	until   time.Time  // no hand-back before
	engines []string   // ids of the engines that answered as this incarnation
}

const (
	// maxEvicted is how many turns in a row may miss their hand-back before the cache counts as too small. Each has
	// computed what its ticket would have saved.
	maxEvicted = 8
	// evictedRest is how long no hand-back follows then. The next turn that misses its hand-back renews it.
	evictedRest = 10 * time.Minute
)

// Told records what a reading says about prefix caching.
func (p *PrefixCache) Told(caching Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caching = caching
}

// On says whether prefix caching is on (enable_prefix_caching).
func (p *PrefixCache) On() Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.caching
}

// Forgets says why the incarnation does not keep hand-backs: prefix caching is off (vllm:cache_config_info), or turns
// in a row missed theirs. It returns "" if it keeps them.
func (p *PrefixCache) Forgets() (why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.caching == No:
		return "its prefix caching is off"
	case p.now().Before(p.until):
		return "its prefix cache evicts hand-backs before their turns come"
	}
	return ""
}

// HandedBackFound records whether a turn found its hand-back in the prefix cache.
func (p *PrefixCache) HandedBackFound(found Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch found {
	case Yes:
		p.evicted = 0
	case No:
		if p.evicted++; p.evicted >= maxEvicted {
			p.evicted = maxEvicted - 1
			p.until = p.now().Add(evictedRest)
		}
	}
}

// maxEngines bounds the engine ids of one incarnation, which may have several data-parallel ranks or several processes
// at one address.
const maxEngines = 16

// AnsweredAs records the engine id of an answer, "" if it names none. It returns false for a new id if others were
// recorded: then another process or rank answers, perhaps after a restart that no reading has shown, and its prefix
// cache has no hand-back.
func (p *PrefixCache) AnsweredAs(engineID string) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if engineID == "" || slices.Contains(p.engines, engineID) {
		return true
	}
	if len(p.engines) < maxEngines {
		p.engines = append(p.engines, engineID)
	}
	return len(p.engines) == 1
}
