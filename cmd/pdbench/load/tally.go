package load

import (
	"time"

	"carryover/cmd/pdbench/result"
)

// tally is what one talk has seen in the measurement. The goroutine of the talk owns it until it ends.
type tally struct {
	turns, errors, delivered int
	firstByte, gaps          result.Samples
	why                      error // the first error, measured or not
}

// chunks notes n chunks of one read. last is the time of the previous chunks, zero for none.
func (t *tally) chunks(n int, now, last time.Time) {
	t.delivered += n
	if last.IsZero() {
		n--
	}
	for range n {
		if last.IsZero() {
			last = now
		}
		t.gaps = append(t.gaps, now.Sub(last))
		last = now
	}
}

func (t *tally) ended(first time.Duration) {
	t.turns++
	t.firstByte = append(t.firstByte, first)
}

func (t *tally) failed(err error, measuring bool) {
	if t.why == nil {
		t.why = err
	}
	if measuring {
		t.errors++
	}
}

func (r *run) measuring() bool { return r.phase.Load() == measured }

// opened counts a stream whose first byte has come.
func (r *run) opened() {
	open := r.streams.Add(1)
	for most := r.most.Load(); open > most && !r.most.CompareAndSwap(most, open); most = r.most.Load() {
	}
}

func (r *run) outcome() Outcome {
	o := Outcome{Wall: r.wall, Streams: int(r.most.Load())}
	var first, gaps []result.Samples
	for _, t := range r.totals {
		o.Turns += t.turns
		o.Errors += t.errors
		o.Chunks += t.delivered
		first, gaps = append(first, t.firstByte), append(gaps, t.gaps)
		if o.Why == "" && t.why != nil {
			o.Why = t.why.Error()
		}
	}
	o.FirstByte, o.Gaps = result.Merge(first...), result.Merge(gaps...)
	return o
}
