package upstream

import (
	"sync"
	"time"
)

// Verdict is what is known about a pair of a prefill and a decode instance.
type Verdict int

// The verdicts of Trials.Begin.
const (
	// Proven: prefill has answered a ticket of this decode instance.
	Proven Verdict = iota + 1
	// Trial: this turn is the pair's trial; nobody else may offer it a ticket
	// until the trial is over.
	Trial
	// Busy: another turn is the pair's trial right now.
	Busy
	// NoReuse: the pair did not answer a ticket in time.
	NoReuse
)

// strikes is how many unanswered tickets a proven pair is allowed: load can make
// one late, three in a row mean that something about the pair has changed.
const strikes = 3

// Trials remembers which pairs of instances answer tickets. Some engines never
// answer one: a prefill instance without bidirectional_kv_xfer parks the request
// for ever (vLLM nixl/pull_scheduler.py), and so does kv_load_failure_policy
// "recompute" on vLLM 0.32 when blocks cannot be loaded. The first ticket on a
// pair is therefore a trial with a time limit, one at a time.
type Trials struct {
	mu    sync.Mutex // guards pairs
	pairs map[pair]*record
}

type pair struct{ prefill, decode string }

type record struct {
	verdict Verdict
	late    int // unanswered tickets since the last answer
}

// NewTrials returns an empty record.
func NewTrials() *Trials { return &Trials{pairs: map[pair]*record{}} }

// Begin asks to offer a ticket of decode to prefill. A caller that gets Trial
// must call End.
func (t *Trials) Begin(prefill, decode string) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.pairs[pair{prefill, decode}]
	if r == nil {
		t.pairs[pair{prefill, decode}] = &record{verdict: Busy}
		return Trial
	}
	return r.verdict
}

// Known returns the verdict without beginning a trial; an unknown pair is Trial.
func (t *Trials) Known(prefill, decode string) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.pairs[pair{prefill, decode}]; r != nil {
		return r.verdict
	}
	return Trial
}

// End reports a ticket's fate: answered, unanswered within the time limit, or
// neither (never sent, refused, client gone), which proves nothing and lets the
// next turn try. It reports whether the pair was barred by this call.
func (t *Trials) End(prefill, decode string, fate Fate) (barred bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := pair{prefill, decode}
	r := t.pairs[key]
	if r == nil || r.verdict == NoReuse {
		return false
	}
	switch fate {
	case Answered:
		r.verdict, r.late = Proven, 0
	case Unanswered:
		r.late++
		if r.verdict == Busy || r.late >= strikes {
			r.verdict = NoReuse
			return true
		}
	case Inconclusive:
		if r.verdict == Busy {
			delete(t.pairs, key)
		}
	}
	return false
}

// Fate is how a ticket on a pair ended.
type Fate int

// The fates of a ticket.
const (
	Inconclusive Fate = iota
	Answered
	Unanswered
)

// Pace learns how long a prefill instance takes per byte of request body, so that
// a long prompt is not mistaken for an engine that never answers.
type Pace struct {
	mu      sync.Mutex // guards perByte
	perByte map[string]float64
}

// NewPace returns a Pace that knows nothing and expects no time.
func NewPace() *Pace { return &Pace{perByte: map[string]float64{}} }

// Learn records a prefill leg that computed its prompt. The mean moves by a fifth
// per leg, so it follows load within a few turns.
func (p *Pace) Learn(instance string, bytes int, took time.Duration) {
	if bytes == 0 {
		return
	}
	sample := float64(took) / float64(bytes)
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.perByte[instance]; ok {
		sample = old + (sample-old)/5
	}
	p.perByte[instance] = sample
}

// Expect returns how long a prefill of so many bytes has taken of late.
func (p *Pace) Expect(instance string, bytes int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.perByte[instance] * float64(bytes))
}
