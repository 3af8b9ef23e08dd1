package pairs

import "time"

// After missesToRest turns in a row whose KV was not announced, turns do not wait for announcements on the pair for
// restFirst, and for twice as long after each further turn that waited in vain, up to restMax: each such turn waits
// for the whole hand-over budget. One turn at a time tries it, for at most tryFor.
const (
	missesToRest = 2
	restFirst    = 30 * time.Second
	restMax      = 5 * time.Minute
	tryFor       = 30 * time.Second
)

// announcing is what is known of a pair's notifications that KV has arrived (LMCache). The zero value has missed none.
//
// An LMCache sender caches its peers' addresses for its life. Once a decode engine has restarted, no prefill engine
// that had talked to it announces KV to it any more, although both answer (measured, 0.5.6). The same holds for a
// sender that does not know where to announce, or whose receiver is full.
type announcing struct {
	misses int           // in a row
	rest   time.Duration // length of the last rest
	until  time.Time     // when it ends
	tried  bool          // a turn has been allowed to wait since

	longest int // tokens of the longest prompt that was announced
}

// Announces reports whether a turn may wait for KV that this prefill incarnation sends to this decode incarnation.
func (ps *State) Announces() bool {
	if ps == nil {
		return true
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	a := &ps.announcing
	if a.misses < missesToRest {
		return true
	}
	now := ps.now()
	if now.Before(a.until) {
		return false
	}
	a.until, a.tried = now.Add(tryFor), true
	return true
}

// Arrived records that the KV of a prompt of tokens tokens was announced, 0 if the number is not known.
func (ps *State) Arrived(tokens int) {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.announcing = announcing{longest: max(ps.announcing.longest, tokens)}
}

// NotAnnounced records that a turn waited in vain for a prompt of tokens tokens. It returns the length of the rest
// that begins now, 0 if none begins. A prompt longer than any that was announced counts for nothing: LMCache announces
// no prompt that is longer than a step of prefill, and clients choose the lengths.
func (ps *State) NotAnnounced(tokens int) (rest time.Duration) {
	if ps == nil {
		return 0
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	a := &ps.announcing
	if a.longest > 0 && tokens > a.longest {
		return 0
	}
	if a.misses+1 < missesToRest {
		a.misses++
		return 0
	}
	if a.rest > 0 && !a.tried {
		return 0 // the turn began to wait before this rest
	}
	a.rest = min(max(restFirst, 2*a.rest), restMax)
	a.misses, a.until, a.tried = missesToRest, ps.now().Add(a.rest), false
	return a.rest
}
