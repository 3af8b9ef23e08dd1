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
	// Trial: this turn is the pair's trial; no other may offer it a ticket until
	// the trial is over.
	Trial
	// Busy: another turn is the pair's trial right now.
	Busy
	// NoReuse: the pair has been stopped, and is not to be tried again yet.
	NoReuse
)

// Fate is how a ticket on a pair ended.
type Fate int

// The fates of a ticket.
const (
	// Inconclusive: never sent, refused as the client's fault, connection broken,
	// client gone.
	Inconclusive Fate = iota
	Answered
	// Unanswered: no answer within the time limit.
	Unanswered
	// Failed: prefill answered 5xx.
	Failed
)

// strikes is how many tickets in a row may go wrong: load can make one late and a
// block that is gone makes one fail, three mean that it is the pair.
const strikes = 3

// A pair that was stopped is left alone for retrialAfter, and for twice as long
// each time that it is stopped again, up to retrialMax: a trial that is not
// answered costs one client the time limit.
const (
	retrialAfter = time.Minute
	retrialMax   = 30 * time.Minute
)

// Trials remembers which pairs of instances answer tickets. Some engines never
// answer one: a prefill instance without bidirectional_kv_xfer parks the request
// for ever (vLLM nixl/pull_scheduler.py), and so does kv_load_failure_policy
// "recompute" on vLLM 0.32 when blocks cannot be loaded. The first ticket on a
// pair is therefore a trial with a time limit, one at a time. Others answer 500,
// each time. It is safe for concurrent use.
type Trials struct {
	// Now is the clock. It is set before the first use.
	Now func() time.Time

	mu    sync.Mutex // guards pairs and what it holds
	pairs map[pair]*record
}

type pair struct{ prefill, decode string }

// record is what is known of a pair. The zero value is a pair that has not been
// tried.
type record struct {
	proven  bool
	trial   bool          // a turn is the pair's trial
	strikes int           // tickets that went wrong since the last answer
	pause   time.Duration // how long the last stop lasts, 0 if there was none since the last answer
	until   time.Time     // when it ends
	asked   time.Time     // the last Begin
}

// NewTrials returns an empty record.
func NewTrials() *Trials { return &Trials{Now: time.Now, pairs: map[pair]*record{}} }

// Begin asks to offer a ticket of decode to prefill, each named with its
// incarnation. A caller that gets Trial or Proven must call End, or the pair stays
// on trial.
func (t *Trials) Begin(prefill, decode string) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.record(pair{prefill, decode})
	r.asked = t.Now()
	switch {
	case r.proven:
		return Proven
	case r.trial:
		return Busy
	case r.asked.Before(r.until):
		return NoReuse
	}
	r.trial = true
	return Trial
}

// End reports a ticket's fate, once per Begin and as soon as it is known.
//
// One that is unanswered on a pair that has never answered stops the pair, and so
// do three in a row that are unanswered or failed, and one in the trial after a
// stop. pause is how long the pair is left alone, if it was stopped by this call.
// An answer proves the pair; resumed reports that it was a stopped one. An
// inconclusive trial lets the next turn try.
//
// The fate of a ticket that was under way when its pair was stopped changes
// nothing, unless it comes so late that the next trial has begun; then it ends the
// trial like the trial's own.
func (t *Trials) End(prefill, decode string, fate Fate) (pause time.Duration, resumed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.pairs[pair{prefill, decode}]
	if r == nil || !r.proven && !r.trial {
		return 0, false
	}
	r.trial = false
	switch fate {
	case Inconclusive:
		return 0, false
	case Answered:
		resumed = r.pause > 0
		*r = record{proven: true, asked: r.asked}
		return 0, resumed
	}
	r.strikes++
	if r.strikes < strikes && r.pause == 0 && (r.proven || fate == Failed) {
		return 0, false
	}
	pause = min(max(retrialAfter, 2*r.pause), retrialMax)
	*r = record{pause: pause, until: t.Now().Add(pause), asked: r.asked}
	return pause, false
}

// record returns the record of a pair, made if there is none. When there are too
// many, the one that was asked for the longest ago goes: a start that has ended is
// asked for no more. It needs t.mu.
func (t *Trials) record(key pair) *record {
	r := t.pairs[key]
	if r != nil {
		return r
	}
	if len(t.pairs) >= maxRemembered {
		var oldest pair
		var asked time.Time
		for key, r := range t.pairs {
			if asked.IsZero() || r.asked.Before(asked) {
				oldest, asked = key, r.asked
			}
		}
		delete(t.pairs, oldest)
	}
	r = &record{}
	t.pairs[key] = r
	return r
}

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
