package facts

import (
	"errors"
	"time"
)

// ErrLate says that an engine is not asked for the ids of a prompt, because it was late with one that is no longer.
var ErrLate = errors.New("prompts of that length are not read in time")

// askedWithin is how many bytes of a prompt have a limit of their own. vLLM tokenises some hundred times as fast.
const askedWithin = 8 << 10

// askLimit returns how long an engine may take to read a prompt of so many bytes, by the limit of a short one: a turn waits for it.
func askLimit(limit time.Duration, bytes int) time.Duration {
	return limit + limit*time.Duration(min(bytes, 14*askedWithin))/askedWithin
}

// An engine that was late with a prompt is not asked for such prompts for lateFirst, and for twice as long after each that is late again, up
// to lateMax: each costs a turn its whole limit.
const (
	lateFirst = 10 * time.Second
	lateMax   = 30 * time.Minute
)

// late is from which length on an engine does not read prompts in time. The zero value knows none.
type late struct {
	bytes  int           // of the shortest
	pause  time.Duration // 0 if there is none
	until  time.Time     // when one is asked for again
	trying bool          // one is
}

// spares reports whether a prompt of so many bytes is not asked for. When the pause is over, one may be.
func (l *late) spares(bytes int, now time.Time) bool {
	if l.pause == 0 || bytes < l.bytes {
		return false
	}
	if now.Before(l.until) {
		return true
	}
	l.until, l.trying = now.Add(lateFirst), true // its client may leave
	return false
}

// took records that a prompt of so many bytes was read in time or late, and reports whether it is the first that was late.
func (l *late) took(bytes int, inTime bool, now time.Time) (first bool) {
	switch {
	case inTime && bytes >= l.bytes:
		*l = late{}
	case inTime:
	case l.pause == 0:
		if *l = (late{bytes: bytes, pause: lateFirst, until: now}); bytes >= askedWithin { // else it may have been busy for a moment
			l.until = now.Add(lateFirst)
		}
		return true
	default:
		l.bytes = min(l.bytes, bytes)
		if l.trying { // else it was asked for before
			l.pause, l.trying = min(2*l.pause, lateMax), false
			l.until = now.Add(l.pause)
		}
	}
	return false
}

// took has the log report the first prompt that is late.
func (p *Prompts) took(bytes int, inTime bool) {
	p.mu.Lock()
	first := p.late.took(bytes, inTime, p.shared.Now())
	p.mu.Unlock()
	if first {
		p.shared.Logger.Warn("engine is late with the ids of a prompt; while it is, prompts of that length reuse nothing",
			"instance", p.instance().Name, "bytes", bytes, "limit", askLimit(p.shared.AskLimit, bytes).String(),
			"advice", "give its API server more CPU: it tokenises beside the streams that it serves")
	}
}
