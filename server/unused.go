package server

import (
	"maps"
	"slices"
	"sync"
	"time"

	"carryover/upstream"
)

// unused is a ticket that will not be used any more, while decode still holds its
// blocks: it was removed from the store, or never got there. It is released once.
type unused struct {
	params      []byte
	decode      string // the instance that holds the blocks
	incarnation string // and which start of it
	model       string
	since       time.Time
	deadline    time.Time // decode has freed the blocks by itself from then on
	refused     bool      // an engine refused a client's request that carried it: only a leg of our own may
}

// Bounds of what waits for its release.
const (
	// maxUnused is per decode instance. What does not fit is left to decode's TTL.
	maxUnused = 1024
	// releaseAfter is how long an unused ticket waits for a prefill leg that can
	// carry it before a leg of our own does: an instance that holds pinned blocks
	// keeps a core busy (measured on vLLM 0.32), however few they are.
	releaseAfter = 5 * time.Second
	// maxCarriers bounds the pairs of starts that are known to have exchanged KV. Where
	// there are more, all have to meet again before they release.
	maxCarriers = 1 << 16
	// releasePause is how long a pair releases nothing after a release went wrong.
	releasePause = 5 * time.Minute
)

// releases are the unused tickets of all decode instances.
type releases struct {
	backlog int // more than so many of one instance are worked off at once
	now     func() time.Time

	mu        sync.Mutex // guards the rest
	lists     map[string][]unused
	exchanged map[carrier]bool
	paused    map[carrier]time.Time
	busy      map[string]bool // decode instances with a leg of our own in flight
}

// carrier is a prefill instance that may bring a release to a decode instance, each
// named with its start. The zero carrier brings nothing.
type carrier struct{ prefill, decode string }

// carrierOf is the zero carrier unless both starts are known.
func carrierOf(prefill, decode *upstream.Instance, s starts) carrier {
	if !s.known() {
		return carrier{}
	}
	return carrier{named(prefill, s.prefill.Incarnation), named(decode, s.decode.Incarnation)}
}

func newReleases(backlog int) *releases {
	return &releases{
		backlog: backlog, now: time.Now,
		lists: map[string][]unused{}, exchanged: map[carrier]bool{}, paused: map[carrier]time.Time{}, busy: map[string]bool{},
	}
}

// met records that decode has read KV of prefill, so that the two know each other.
func (r *releases) met(c carrier) {
	if c == (carrier{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.exchanged) >= maxCarriers {
		clear(r.exchanged)
	}
	r.exchanged[c] = true
}

// add keeps an unused ticket until it can be released.
func (r *releases) add(u unused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.since.IsZero() {
		u.since = r.now()
	}
	list := r.live(u.decode)
	if len(list) < maxUnused {
		r.lists[u.decode] = append(list, u)
	}
}

// live drops what is past its deadline and returns the rest. It needs r.mu. Of an
// instance with none nothing is remembered: every leg looks through all lists.
func (r *releases) live(decode string) []unused {
	now, list := r.now(), r.lists[decode]
	kept := list[:0]
	for _, u := range list {
		if upstream.Elapsed(u.deadline, now) < 0 {
			kept = append(kept, u)
		}
	}
	clear(list[len(kept):])
	r.keep(decode, kept)
	return kept
}

func (r *releases) keep(decode string, list []unused) {
	if len(list) == 0 {
		delete(r.lists, decode)
		return
	}
	r.lists[decode] = list
}

// waiting lists the decode instances with unused tickets.
func (r *releases) waiting() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for decode := range r.lists {
		if len(r.live(decode)) > 0 {
			all = append(all, decode)
		}
	}
	return all
}

// take hands out the oldest unused ticket of a decode instance for a carrier to
// bring, on a leg of our own or on a turn's. Tickets of another start of decode
// than incarnation, the one alive, are dropped: its blocks are gone. While that is
// not known they wait.
func (r *releases) take(c carrier, decode, incarnation string, own bool) (unused, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.live(decode)
	for incarnation != "" && len(list) > 0 && list[0].incarnation != incarnation {
		list = list[1:]
	}
	r.keep(decode, list)
	at := slices.IndexFunc(list, func(u unused) bool { return u.incarnation == incarnation && (own || !u.refused) })
	if at < 0 || incarnation == "" || !r.exchanged[c] || r.now().Before(r.paused[c]) {
		return unused{}, false
	}
	u := list[at]
	r.keep(decode, slices.Delete(list, at, at+1))
	return u, true
}

// failed stops a pair from releasing for a while.
func (r *releases) failed(c carrier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	maps.DeleteFunc(r.paused, func(_ carrier, until time.Time) bool { return !now.Before(until) })
	r.paused[c] = now.Add(releasePause)
}

// due lists the decode instances with more unused tickets than the backlog, or with
// one that has waited for too long, and marks them busy until done is called.
func (r *releases) due() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for decode := range r.lists {
		list := r.live(decode)
		if r.busy[decode] || len(list) == 0 || len(list) <= r.backlog && r.now().Sub(list[0].since) < releaseAfter {
			continue
		}
		r.busy[decode] = true
		all = append(all, decode)
	}
	return all
}

func (r *releases) done(decode string) {
	r.mu.Lock()
	delete(r.busy, decode)
	r.mu.Unlock()
}
