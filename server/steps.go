package server

import "time"

// The steps of a turn that are no legs.
const (
	StepQueue    = "queue"    // a wait for a place, or for room on an instance; that one lies within the look-up
	StepLookup   = "lookup"   // from the look at the store until it is known what is reused, waits for room and questions to engines included
	StepHandover = "handover" // from prefill's answer until decode may be asked
	StepPut      = "put"      // the store takes the new ticket
)

// maxSteps bounds what is kept of one turn: four attempts' worth, which is more than retries allow.
const maxSteps = 16

// Step is one step of an attempt. Steps are noted of turns that are traced, for their spans.
type Step struct {
	Name    string
	Attempt int // 0 for the first
	Began   time.Time
	Took    time.Duration
	Failed  bool
}

// stepNote is a step that goes on. The zero value notes nothing.
type stepNote struct {
	of    *Record
	name  string
	began time.Time
}

// step begins a step.
func (r *Record) step(name string) stepNote {
	if !r.Trace.Recorded() {
		return stepNote{}
	}
	return stepNote{r, name, time.Now()}
}

// ended notes how a step went.
func (n stepNote) ended(ok bool) {
	if n.of != nil {
		n.of.noteStep(Step{Name: n.name, Attempt: n.of.Retries, Began: n.began, Took: time.Since(n.began), Failed: !ok})
	}
}

// queued notes a wait that has just ended.
func (r *Record) queued(waited time.Duration, ok bool) {
	r.Queued += waited
	if waited > 0 && r.Trace.Recorded() {
		r.noteStep(Step{Name: StepQueue, Attempt: r.Retries, Began: time.Now().Add(-waited), Took: waited, Failed: !ok})
	}
}

func (r *Record) noteStep(s Step) {
	if r.Steps == nil {
		r.Steps = make([]Step, 0, 4)
	}
	if len(r.Steps) < maxSteps {
		r.Steps = append(r.Steps, s)
	}
}
