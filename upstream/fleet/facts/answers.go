package facts

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// AnswerIDs is whether an engine's answers carry the id of the request. It belongs to the gateway in front of the
// engine, so it outlasts restarts.
type AnswerIDs struct{ echoes atomic.Bool }

// Foreign reports whether an answer with this id can't belong to the leg with the id leg. vLLM makes the id of an
// answer from the leg's X-Request-Id, and a Responses answer has the id that was asked for. A gateway may replace the
// ids; then nothing can be said. An engine that has echoed an id once is expected to do so always, also after
// restarts.
func (a *AnswerIDs) Foreign(leg, id string) bool {
	if rest, own := strings.CutSuffix(id, leg); own && (strings.HasSuffix(rest, "-") || rest == "resp_") {
		a.echoes.Store(true)
		return false
	}
	return id != "" && a.echoes.Load()
}

// PlugIn is whether the params of a decode incarnation carry output_token_ids, which a plug-in in vLLM adds.
type PlugIn struct {
	known bool // of an incarnation that is not known, nothing is recorded
	found atomic.Int32
}

// Found says whether they do, by the answers so far.
func (p *PlugIn) Found() Finding { return Finding(p.found.Load()) }

// Learn records whether the params of an answer that could leave a ticket had output ids. The first answer
// without them withdraws the finding: without its ids a turn leaves no ticket, so a plug-in that adds them only
// sometimes is of no use.
func (p *PlugIn) Learn(present bool) {
	switch {
	case !p.known:
	case present:
		p.found.CompareAndSwap(int32(Unknown), int32(Yes))
	default:
		p.found.Store(int32(No))
	}
}

// SilentAfter is how many finished answers in a row without params make a decode incarnation count as silent. vLLM may
// leave params out of a single answer for its own reasons.
const SilentAfter = 3

// Silence is whether a decode incarnation leaves kv_transfer_params out of its answers.
type Silence struct{ answers atomic.Int64 } // in a row that brought none

// SentNothing records a finished answer to a hand-over that brought no params. Stock vLLM brings none in any stream
// (vLLM #40186). It reports whether the incarnation has become silent by it.
func (s *Silence) SentNothing() (silent bool) { return s.answers.Add(1) == SilentAfter }

// SentParams records an answer with params.
func (s *Silence) SentParams() { s.answers.Store(0) }

// Silent reports whether the incarnation sends no params.
func (s *Silence) Silent() bool { return s.answers.Load() >= SilentAfter }

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
func (p *PrefixCache) Told(caching Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caching = caching
}

// On says whether the incarnation has prefix caching on (enable_prefix_caching).
func (p *PrefixCache) On() Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.caching
}

// Forgets says why a prefill incarnation does not keep what is handed back to it: its prefix caching is off
// (vllm:cache_config_info), or turns in a row found nothing of it. It returns "" if nothing speaks against a
// hand-back.
func (p *PrefixCache) Forgets() (why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.caching == No:
		return "its prefix caching is off"
	case p.now().Before(p.until):
		return "its prefix cache has evicted it before the turns came"
	}
	return ""
}

// HandedBackFound records whether a turn found in the prefix cache what had been handed back for it.
func (p *PrefixCache) HandedBackFound(found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found {
		p.evicted = 0
		return
	}
	if p.evicted++; p.evicted >= maxEvicted {
		p.evicted = maxEvicted - 1
		p.until = p.now().Add(evictedRest)
	}
}

// maxEngines bounds the recorded engine ids of one incarnation: it may have several data-parallel ranks, or several
// processes behind one address.
const maxEngines = 16

// AnsweredAs records that an engine with that id has answered, "" if the answer names none. It returns false if other
// ids were recorded for this incarnation, and this one was not: then another process or rank answers, possibly after a
// restart that no reading has shown yet, and its prefix cache has nothing of what was handed back.
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
