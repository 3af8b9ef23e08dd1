package fleet

import "time"

// A link on which the KV of so many turns in a row was not announced is left alone for restFirst, and for twice as long each time that
// a turn has tried it in vain, up to restMax: each such turn waits for the whole hand-over budget. A turn that tries has tryFor before
// another may.
const (
	missesToRest = 2
	restFirst    = 30 * time.Second
	restMax      = 5 * time.Minute
	tryFor       = 30 * time.Second
)

// announcing is what is known of the notifications that KV has arrived (LMCache). The zero value is a link that misses none.
//
// An LMCache sender keeps its peers by address for its life: once a decode engine has been restarted, no prefill that had talked to it
// notifies of its KV any more, although both answer (measured, 0.5.6). Nor does one that does not know where the notifications go, or
// whose receiver is full.
type announcing struct {
	misses int           // in a row
	rest   time.Duration // how long the last one was
	until  time.Time     // when it ends
	tried  bool          // a turn has been let wait since

	longest int // prompt that was announced, in tokens
}

// Announces reports whether a turn may wait for KV that this start of prefill sends to this start of decode.
func (ps *PairState) Announces() bool {
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

// Arrived records that the KV of a prompt of so many tokens was announced, 0 if that is not known.
func (ps *PairState) Arrived(tokens int) {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.announcing = announcing{longest: max(ps.announcing.longest, tokens)}
}

// NotAnnounced records that a turn has waited in vain, and returns for how long the link is left alone from now, 0 if that has not just
// begun. Of a prompt longer than any that was announced it says nothing of the link: LMCache announces none that is longer than a step of
// prefill, and clients choose how long prompts are.
func (ps *PairState) NotAnnounced(tokens int) (rest time.Duration) {
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
		return 0 // it began to wait before
	}
	a.rest = min(max(restFirst, 2*a.rest), restMax)
	a.misses, a.until, a.tried = missesToRest, ps.now().Add(a.rest), false
	return a.rest
}
