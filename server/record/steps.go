package record

import "time"

// The steps of a turn besides its legs.
const (
	StepQueue    = "queue"    // a wait for a slot of the server, or of an instance; the latter is a part of the look-up
	StepLookup   = "lookup"   // from the look at the store until the reuse is decided, with waits for instances and questions to engines
	StepHandover = "handover" // from prefill's answer until decode may be asked
	StepPut      = "put"      // the store takes the new ticket
)

// maxSteps is how many steps of one turn are kept: those of four attempts, which is more than retries allow.
const maxSteps = 16

// Step is one step of an attempt. Only traced turns record steps, for their spans.
type Step struct {
	Name    string
	Attempt int // 0 for the first
	Began   time.Time
	Took    time.Duration
	Failed  bool
}

// BegunStep is a step that has begun.
type BegunStep struct {
	of     *Turn
	name   string
	began  time.Time
	queued time.Duration // how long the turn had waited for slots by then
}

// Step begins a step.
func (b *Builder) Step(name string) BegunStep {
	return BegunStep{&b.turn, name, time.Now(), b.turn.Queued}
}

// Ended records the step, and whether it succeeded. That of the look-up says that the attempt has decided what to reuse.
func (n BegunStep) Ended(ok bool) {
	took := time.Since(n.began)
	if ok && n.name == StepLookup {
		n.of.Lookup = took - (n.of.Queued - n.queued)
	}
	n.of.noteStep(Step{Name: n.name, Attempt: n.of.Retries, Began: n.began, Took: took, Failed: !ok})
}

// Waited records a wait that has just ended.
func (b *Builder) Waited(waited time.Duration, ok bool) {
	r := &b.turn
	r.Queued += waited
	if waited > 0 {
		r.noteStep(Step{Name: StepQueue, Attempt: r.Retries, Began: time.Now().Add(-waited), Took: waited, Failed: !ok})
	}
}

func (r *Turn) noteStep(s Step) {
	if !r.Trace.Recorded() {
		return
	}
	if r.Steps == nil {
		r.Steps = make([]Step, 0, 4)
	}
	if len(r.Steps) < maxSteps {
		r.Steps = append(r.Steps, s)
	}
}
