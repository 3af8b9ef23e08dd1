package health

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
)

// circuitModel is a circuit as its comment tells of it: a phase, and how many legs have failed in a row (while it is closed)
// or how often it has been opened in a row (otherwise).
type circuitModel struct {
	phase string
	n     int
}

// The phases. A half-open circuit is tried or waits for an attempt to do so.
const (
	closed   = "closed"
	opened   = "open"
	halfOpen = "half-open"
	tried    = "tried"
)

// The events. An attempt that was the trial ends, or the one that was it before.
const (
	attempted = "an attempt begins"
	ends      = "the last trial ends"
	endsLate  = "the trial before ends"
	headers   = "answered"
	serves    = "served"
	fails     = "failed"
	waits     = "30s pass"
)

// seenOf is what can be seen of a circuit after an event: whether the engine is preferred, whether the attempt became a trial,
// and how long the circuit is open from now, in seconds.
type seenOf struct {
	up, trial bool
	pause     int
}

func circuitEvents() []string {
	return []string{attempted, ends, endsLate, headers, serves, fails, waits}
}

// after is the model's next state, and what is seen then.
func (m circuitModel) after(event string) (next circuitModel, seen seenOf) {
	next = m
	switch {
	case event == waits && (m.phase == opened || m.phase == tried):
		next = circuitModel{halfOpen, m.n}
	case event == attempted && m.phase == halfOpen:
		next, seen.trial = circuitModel{tried, m.n}, true
	case (event == ends || event == headers) && m.phase == tried:
		next = circuitModel{halfOpen, m.n}
	case event == serves && m.phase != opened:
		next = circuitModel{closed, 0}
	case event == fails && m.phase == closed && m.n < FailuresToOpen-1:
		next.n++
	case event == fails && m.phase == closed:
		next = circuitModel{opened, 1}
	case event == fails && m.phase != opened:
		next = circuitModel{opened, m.n + 1}
	}
	seen.up = next.phase == closed || next.phase == halfOpen
	if event == fails && next.phase == opened && m.phase != opened {
		seen.pause = []int{1, 2, 4, 8, 16, 30}[min(next.n, 6)-1]
	}
	return next, seen
}

// playCircuit runs events from the start and returns what is seen after the last.
func playCircuit(events []string) (seen seenOf) {
	now := time.Now()
	began := now
	h := &Health{}
	h.Init(Config{
		Now: func() time.Time { return now }, Born: now, Log: slog.New(slog.DiscardHandler),
		Heard: func() {}, Back: func() {}, Down: func(string) {}, Tell: func(string) {},
	})
	attempts := uint64(0)
	trials := []uint64{0, 0}
	for _, event := range events {
		seen = seenOf{}
		switch event {
		case attempted:
			attempts++
			if h.Begin(attempts); h.is.circuit.trial == attempts {
				trials = append(trials, attempts)
				seen.trial = true
			}
		case ends:
			h.End(trials[len(trials)-1])
		case endsLate:
			h.End(trials[len(trials)-2])
		case headers:
			h.Answered()
		case serves:
			h.Served()
		case fails:
			h.Failed(&upstream.LegError{Kind: upstream.Broken})
			if h.is.circuit.open(now) {
				seen.pause = int(h.is.circuit.until.Sub(now).Seconds())
			}
		case waits:
			now = now.Add(openMax)
		}
		seen.up = h.Up(now.Sub(began))
	}
	return seen
}

// From each state that the model can be in, every sequence of three events is told alike by the model and by a Health.
func TestCircuit_AllOrdersOfEvents(t *testing.T) {
	const deepest = 7
	paths := map[circuitModel][]string{{closed, 0}: nil}
	queue := []circuitModel{{closed, 0}}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, event := range circuitEvents() {
			next, _ := queue[0].after(event)
			if _, known := paths[next]; !known && next.n <= deepest {
				paths[next] = append(slices.Clone(paths[queue[0]]), event)
				queue = append(queue, next)
			}
		}
	}
	if want := FailuresToOpen + 3*deepest; len(paths) != want {
		t.Fatalf("the model has %d states, want %d", len(paths), want)
	}
	var follow func(state circuitModel, path []string, depth int)
	follow = func(state circuitModel, path []string, depth int) {
		if depth == 0 || t.Failed() {
			return
		}
		for _, event := range circuitEvents() {
			events := append(slices.Clone(path), event)
			next, want := state.after(event)
			got := playCircuit(events)
			if event == fails && state.phase == opened {
				got.pause = 0 // it is still open as it was
			}
			if got != want {
				t.Errorf("%s\ngot  %+v\nwant %+v", strings.Join(events, ", "), got, want)
				return
			}
			follow(next, events, depth-1)
		}
	}
	for state, path := range paths {
		follow(state, path, 3)
	}
}
